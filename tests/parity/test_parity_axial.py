"""Axial attention against axial_attention: the sum directly, the chain by its components."""

import pytest
import torch

from attnbench.mechanisms.axial import CARD, Config
from attnbench.records import Workload

theirs = pytest.importorskip("axial_attention", reason="axial_attention is not installed")


def pair(combine):
    torch.manual_seed(0)
    w = Workload(batch=2, seq_len=30, width=16, heads=4, level="attention")
    ours = CARD.forms["eager"](Config(combine=combine, columns=5, bias=True), w).double()
    other = theirs.AxialAttention(16, 2, 4, dim_index=-1).double()
    column, row = (part.fn for part in other.axial_attentions)
    for axis, part in ((ours.row, row), (ours.column, column)):
        load(axis, part)
    return ours, other


@torch.no_grad()
def load(axis, part):
    """Their query, combined key and value, and output; only the output has a bias."""
    axis.query.weight.copy_(part.to_q.weight)
    axis.key.weight.copy_(part.to_kv.weight[:16])
    axis.value.weight.copy_(part.to_kv.weight[16:])
    axis.output.load_state_dict(part.to_out.state_dict())
    for linear in (axis.query, axis.key, axis.value):
        linear.bias.zero_()


def test_the_sum_of_both_axes_equals_theirs():
    ours, other = pair("sum")
    x = torch.randn(2, 30, 16, dtype=torch.float64)
    torch.testing.assert_close(ours(x), other(x.view(2, 6, 5, 16)).flatten(1, 2))


def test_the_chain_equals_their_axes_as_residual_blocks():
    ours, other = pair("chained")
    column, row = other.axial_attentions
    x = torch.randn(2, 6, 5, 16, dtype=torch.float64)
    after_row = x + row(x)
    expected = after_row + column(after_row) - x
    torch.testing.assert_close(ours(x.flatten(1, 2)), expected.flatten(1, 2))
