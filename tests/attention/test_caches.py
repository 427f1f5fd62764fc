"""The cache of keys and values: which tokens it keeps, where, and what a step reads."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnbench.attention import caches
from attnbench.attention.primitives import softmax_attention


def numbered(first, count):
    """k and v [1, 1, count, 1] of tokens, whose k is their number and whose v is minus that."""
    k = torch.arange(first, first + count, dtype=torch.float64).view(1, 1, -1, 1)
    return k, -k


@given(
    fixed=st.integers(0, 4),
    ring=st.integers(1, 6),
    counts=st.lists(st.integers(1, 20), min_size=1, max_size=6),
)
def test_it_keeps_the_first_tokens_and_the_last_ones(fixed, ring, counts):
    cache = caches.empty(torch.zeros(1).double(), 1, 1, fixed + ring, 1, fixed)
    for count in counts:
        cache = cache.added(*numbered(cache.length, count))
    N = sum(counts)
    kept = {*range(min(fixed, N)), *range(max(fixed, N - ring), N)}
    k, v = cache.held()
    assert sorted(k.flatten().tolist()) == sorted(kept)
    assert v.equal(-k)
    for first in range(max(fixed, N - ring), N):
        tokens = [token for piece, _ in cache.since(first) for token in piece.flatten().tolist()]
        assert tokens == list(range(first, N))


def test_a_token_is_written_in_place_and_can_be_written_anew():
    cache = caches.empty(torch.zeros(1).double(), 1, 1, 5, 1).added(*numbered(0, 7))
    buffers = cache.k.data_ptr(), cache.v.data_ptr()
    first = cache.added(*numbered(100, 1))
    again = cache.added(*numbered(7, 1))
    assert (again.k.data_ptr(), again.v.data_ptr()) == buffers
    assert (cache.length, first.length, again.length) == (7, 8, 8)
    assert again.k.flatten().tolist() == [5, 6, 7, 3, 4]


@pytest.mark.parametrize("heads", [1, 2, 6])
def test_a_step_reads_what_softmax_attention_reads(heads):
    torch.manual_seed(0)
    q = torch.randn(2, 6, 1, 3, dtype=torch.float64)
    k, v = torch.randn(2, 2, heads, 9, 3, dtype=torch.float64)
    every = [t.repeat_interleave(6 // heads, 1) for t in (k, v)]
    expected = softmax_attention(q, *every, None)
    torch.testing.assert_close(caches.next_output(q, k, v), expected)
    torch.testing.assert_close(
        caches.next_output(*(t.float() for t in (q, k, v))), expected.float()
    )
    pieces = [(every[0][:, :, a:b], every[1][:, :, a:b]) for a, b in ((0, 4), (4, 4), (4, 9))]
    o, A = caches.read(q, pieces)
    torch.testing.assert_close(o, expected)
    torch.testing.assert_close(A.sum(-1), torch.ones(2, 6, 1, dtype=torch.float64))
