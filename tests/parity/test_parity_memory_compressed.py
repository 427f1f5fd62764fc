"""Memory-compressed attention against memory_compressed_attention, for multiples of three.

The package departs from the paper: one grouped convolution for keys and values, scaling by the
full width, a null key even if not causal, and padding at the front.
"""

import pytest
import torch

from attnbench.mechanisms.memory_compressed import Config
from attnbench.records import Level, Workload
from tests.oracles import pair

W = Workload(batch=2, seq_len=21, width=16, heads=4, level=Level.ATTENTION, causal=True)


@torch.no_grad()
def load(ours, other):
    """Copies their grouped convolution as a full one, and their scale 1/√D into the queries."""
    q, k, v = other.to_qkv.weight.chunk(3)
    for linear, weight in ((ours.query, q * (4 / 16) ** 0.5), (ours.key, k), (ours.value, v)):
        linear.weight.copy_(weight)
        linear.bias.zero_()
    conv = other.compress_fn.conv  # weight [D, D / H, 3]
    full = torch.stack([torch.block_diag(*tap.split(4)) for tap in conv.weight.unbind(-1)], 1)
    for linear in (ours.compress_key, ours.compress_value):
        linear.weight.copy_(full.flatten(1))
        linear.bias.copy_(conv.bias)
    ours.output.load_state_dict(other.to_out.state_dict())
    for our, their in ((ours.null_key, other.null_k), (ours.null_value, other.null_v)):
        our.copy_(torch.nn.init.normal_(their).flatten())


@pytest.mark.parametrize("form", ["eager", "sdpa", "folded"])
def test_the_causal_form_equals_theirs(form):
    forms = (form, "memory_compressed_attention")
    ours, theirs = pair("memory_compressed", forms, Config(bias=True), W)
    load(ours, theirs.package_layer)
    x = torch.randn(2, 21, 16, dtype=torch.float64)
    torch.testing.assert_close(ours(x), theirs(x))
