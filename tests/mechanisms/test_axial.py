"""Axial attention against dense attention, and which tokens each output depends on."""

import pytest
import torch

from attnbench.attention.contract import merge
from attnbench.mechanisms.axial import Config
from tests.mechanisms.building import build, reads

NAME, N, W = "axial", 23, 5


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
    module = build(NAME, form, seq_len=N, columns=W, combine="sum")
    expected = dense(module.row, x, row) + dense(module.column, x, column)
    torch.testing.assert_close(module(x), expected)
    module = build(NAME, form, seq_len=N, columns=W)
    r = dense(module.row, x, row)
    torch.testing.assert_close(module(x), r + dense(module.column, x + r, column))


@pytest.mark.parametrize("form", ["eager", "sdpa"])
def test_the_causal_chain_reads_exactly_the_past(form):
    everything = torch.ones(N, N, dtype=torch.bool).tril()
    assert torch.equal(reads(build(NAME, form, seq_len=N, causal=True, columns=W), N), everything)


def test_the_causal_sum_reads_the_past_of_row_and_column():
    row, column = same_row_and_column()
    seen = reads(build(NAME, seq_len=N, causal=True, columns=W, combine="sum"), N)
    assert torch.equal(seen, (row | column).tril())


@pytest.mark.parametrize(
    ("seq_len", "grid"), [(1, (1, 1)), (512, (32, 16)), (1000, (32, 32)), (65_535, (256, 256))]
)
def test_the_grid_is_near_a_square(seq_len, grid):
    assert Config().grid(seq_len) == grid
