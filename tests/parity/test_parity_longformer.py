"""Longformer against transformers' self-attention, with its weights."""

import warnings

import pytest
import torch
from torch import nn

from attnbench.mechanisms.longformer import CARD, Config
from attnbench.records import Level, Workload

REASON = "parity with the public implementation in transformers"


@pytest.fixture(scope="module")
def public():
    """The public layer with window 8, 4 heads and width 32."""
    pytest.importorskip("transformers", reason=REASON)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers.models.longformer import modeling_longformer as theirs

        config = theirs.LongformerConfig(
            hidden_size=32,
            num_attention_heads=4,
            attention_window=[8],
            attention_probs_dropout_prob=0.0,
        )
        torch.manual_seed(0)
        return theirs.LongformerSelfAttention(config, layer_id=0).eval()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", ["eager", "blocked", "folded"])
@pytest.mark.parametrize("padded", [False, True])
def test_outputs_and_gradients_agree(public, form, padded):
    g, N = 3, 48
    w = Workload(batch=2, seq_len=N, width=32, heads=4, level=Level.ATTENTION)
    module = CARD.forms[form](Config(window=8, global_tokens=g, bias=True), w)
    module.load_state_dict(public.state_dict(), strict=False)
    module.output = nn.Identity()
    mask = torch.ones(2, N, dtype=torch.bool)
    if padded:
        mask[1, 30:] = False
    kinds = torch.where(mask, 0, -10000)
    kinds[:, :g] = 10000
    x = torch.randn(2, N, 32, generator=torch.Generator().manual_seed(1), requires_grad=True)
    expected = public(
        x,
        attention_mask=kinds,
        is_index_masked=kinds < 0,
        is_index_global_attn=kinds > 0,
        is_global_attn=True,
    )[0]
    y = module(x, mask if padded else None)
    torch.testing.assert_close(y[mask], expected[mask], rtol=1e-4, atol=1e-5)
    weights = torch.randn(y[mask].shape, generator=torch.Generator().manual_seed(2))
    (ours,) = torch.autograd.grad((y[mask] * weights).sum(), x)
    (theirs,) = torch.autograd.grad((expected[mask] * weights).sum(), x)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
