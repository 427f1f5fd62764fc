"""Axial attention against dense attention."""

import pytest
import torch

from attnbench.attention.contract import merge
from tests.mechanisms.building import build

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
