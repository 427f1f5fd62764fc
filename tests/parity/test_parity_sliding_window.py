"""Sliding windows against Mistral's masks, and sinks against gpt-oss: outputs and gradients."""

import pytest
import torch

from attnbench.catalogue.registry import card
from attnbench.mechanisms.sliding_window import Config
from attnbench.records import Level, Workload
from tests.oracles import build

D, H, N = 32, 4, 70
W = Workload(batch=2, seq_len=N, width=D, heads=H, level=Level.ATTENTION, causal=True)
CARD = card("sliding_window")
pytestmark = pytest.mark.filterwarnings("ignore")


def test_a_window_of_mistral_counts_the_token_itself():
    theirs = build("sliding_window", "transformers", Config(window=9), W).theirs
    from transformers.masking_utils import sliding_window_causal_mask_function

    usable = sliding_window_causal_mask_function(9)
    i = torch.arange(N)
    assert theirs.band.equal(usable(0, 0, i[:, None], i[None]))


@pytest.mark.parametrize("form", [name for name in CARD.own_forms if not CARD.forms[name].compiles])
def test_sink_logits_of_gpt_oss(form):
    public = pytest.importorskip("transformers.models.gpt_oss.modeling_gpt_oss")
    config = public.GptOssConfig(
        hidden_size=D,
        num_attention_heads=H,
        num_key_value_heads=2,
        head_dim=D // H,
        sliding_window=9,
        num_hidden_layers=1,
        layer_types=["sliding_attention"],
        attention_bias=False,
        attn_implementation="eager",
    )
    torch.manual_seed(0)
    theirs = public.GptOssAttention(config, 0)
    torch.nn.init.normal_(theirs.sinks)
    ours = CARD.forms[form](Config(window=9, kv_heads=2, sink_logit=True), W)
    ours.query, ours.key, ours.value = theirs.q_proj, theirs.k_proj, theirs.v_proj
    ours.output, ours.sink = theirs.o_proj, theirs.sinks
    i = torch.arange(N)
    hidden = (i > i[:, None]) | (i[:, None] - i >= 9)
    bias = torch.zeros(1, 1, N, N).masked_fill(hidden, torch.finfo(torch.float32).min)
    width = D // H // 2  # it rotates halves by as many angles
    rotation = torch.ones(W.batch, N, width), torch.zeros(W.batch, N, width)
    x = torch.randn(W.batch, N, D, requires_grad=True)
    results = []
    for y in (ours(x), theirs(x, rotation, bias)[0]):
        results.append((y, *torch.autograd.grad(y.square().sum(), x)))
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)
