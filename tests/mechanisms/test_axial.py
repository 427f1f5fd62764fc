"""Axial attention against dense attention, and which tokens each output depends on."""

import pytest
import torch

from attnbench.attention.contract import merge
from attnbench.mechanisms.axial import CARD, Config
from attnbench.records import Workload

N, W = 23, 5


def build(config, form="eager", causal=False, seq_len=N):
    torch.manual_seed(0)
    w = Workload(batch=2, seq_len=seq_len, width=16, heads=4, level="attention", causal=causal)
    return CARD.forms[form](config, w).double()


def reach(module):
    """[N, N]: the tokens on which each output depends."""
    x = torch.randn(1, N, 16, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda t: module(t)[0].sum(-1), x)
    return jacobian[:, 0].abs().sum(-1) > 0


def same_row_and_column():
    """[N, N] twice: whether two tokens share a row, and a column."""
    i = torch.arange(N)
    return (i[:, None] // W == i // W), (i[:, None] % W == i % W)


def dense(axis, x, allowed):
    q, k, v = (
        f(x).unflatten(-1, (4, 4)).transpose(1, 2) for f in (axis.query, axis.key, axis.value)
    )
    scores = (q @ k.mT / 2).masked_fill(~allowed, -torch.inf)
    return axis.output(merge(scores.softmax(-1) @ v))


@pytest.mark.parametrize("form", ["eager", "sdpa"])
def test_both_combinations_equal_dense_attention_under_their_masks(form):
    row, column = same_row_and_column()
    x = torch.randn(2, N, 16, dtype=torch.float64)
    module = build(Config(columns=W, combine="sum"), form)
    expected = dense(module.row, x, row) + dense(module.column, x, column)
    torch.testing.assert_close(module(x), expected)
    module = build(Config(columns=W), form)
    r = dense(module.row, x, row)
    torch.testing.assert_close(module(x), r + dense(module.column, x + r, column))


@pytest.mark.parametrize("form", ["eager", "sdpa"])
def test_the_causal_chain_reads_exactly_the_past(form):
    everything = torch.ones(N, N, dtype=torch.bool).tril()
    assert torch.equal(reach(build(Config(columns=W), form, causal=True)), everything)


def test_the_causal_sum_reads_the_past_of_row_and_column():
    row, column = same_row_and_column()
    seen = reach(build(Config(columns=W, combine="sum"), causal=True))
    assert torch.equal(seen, (row | column).tril())


@pytest.mark.parametrize(
    ("seq_len", "grid"), [(1, (1, 1)), (512, (32, 16)), (1000, (32, 32)), (65_535, (256, 256))]
)
def test_the_grid_is_near_a_square(seq_len, grid):
    assert Config().grid(seq_len) == grid
