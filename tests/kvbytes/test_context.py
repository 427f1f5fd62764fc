"""Bytes of layers beside a count of all lengths one by one."""

import math
from itertools import takewhile

import pytest

from attnbench.kvbytes.context import CachePart, ContextQuery, Layer, rows

FULL = 32  # numbers per token
PARTS = {
    "all": [CachePart(FULL)],
    "window": [CachePart(FULL, max_entries=9)],
    "state": [CachePart(1000, max_entries=1, item_bytes=4)],
    "pools": [
        CachePart(8, stride=16),
        CachePart(16, stride=16, remainder_only=True),
        CachePart(4, max_entries=7),
    ],
    "half": [CachePart(FULL // 2), CachePart(700, max_entries=1)],
    "more": [CachePart(FULL), CachePart(4)],
}
LENGTHS = tuple(range(1, 400))


def whole(name, memory=None):
    query = ContextQuery(lengths=LENGTHS, item_bytes=2, memory=memory)
    return rows([Layer(name, tuple(PARTS[name]), None)], query)[-2]


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("length", [1, 100, 200, 303])
def test_the_longest_context_is_the_last_before_one_that_does_not_fit(name, length):
    sizes = whole(name).at
    memory = sizes[length - 1]
    fitting = len(list(takewhile(lambda n: sizes[n - 1] <= memory, LENGTHS)))
    longest = whole(name, memory).longest
    if fitting == len(LENGTHS):
        assert longest >= fitting
    else:  # what is said never needs more, and less than a pool longer does
        assert fitting - (16 if name == "pools" else 0) <= longest <= fitting


def test_a_state_fits_at_any_length_or_at_none():
    assert whole("state", 4_000).longest == math.inf
    assert whole("state", 3_999).longest == 0
