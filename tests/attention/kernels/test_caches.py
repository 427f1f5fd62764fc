"""The cache of keys and values: which tokens it keeps, where, and what a step reads."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from attnbench.attention.kernels import caches


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
    query, key = cache.numbers(counts[-1])
    assert query.flatten().tolist() == [*range(N - counts[-1], N)]
    assert key.equal(k.flatten().long())
    for first in range(max(fixed, N - ring), N):
        tokens = [token for piece, _ in cache.since(first) for token in piece.flatten().tolist()]
        assert tokens == list(range(first, N))
