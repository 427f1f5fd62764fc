"""Transformer against torch's MultiheadAttention, with its weights."""

import pytest
import torch
from torch import nn

from attnbench.records import Level, Workload
from attnbench.registry import card

WIDTH, HEADS, N = 32, 4, 21


@pytest.mark.parametrize("form", ["eager", "sdpa"])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("masked", [False, True], ids=["all", "padded"])
def test_multihead_attention(form, causal, masked):
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, dtype=torch.float64).eval()
    nn.init.normal_(theirs.in_proj_bias)
    nn.init.normal_(theirs.out_proj.bias)
    transformer = card("transformer")
    workload = Workload(
        batch=2, seq_len=N, width=WIDTH, heads=HEADS, level=Level.ATTENTION, causal=causal
    )
    ours = transformer.forms[form](transformer.config(bias=True), workload).double()
    parts = zip(theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3), strict=True)
    for linear, (weight, bias) in zip((ours.query, ours.key, ours.value), parts, strict=True):
        linear.weight.data, linear.bias.data = weight.detach(), bias.detach()
    ours.output.load_state_dict(theirs.out_proj.state_dict())
    x = torch.randn(2, N, WIDTH, dtype=torch.float64)
    mask = torch.arange(N).expand(2, -1) < torch.tensor([[N], [13]]) if masked else None
    future = torch.ones(N, N).triu(1).bool() if causal else None
    padding = None if mask is None else ~mask
    expected, _ = theirs(x, x, x, key_padding_mask=padding, attn_mask=future, need_weights=False)
    real = torch.ones(2, N).bool() if mask is None else mask
    torch.testing.assert_close(ours(x, mask)[real], expected[real], rtol=1e-10, atol=1e-12)
