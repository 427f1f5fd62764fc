"""Bytes of layers beside a count of all lengths one by one."""

import math

import pytest

from attnbench.commands.model.context import CachePart, ContextQuery, Layer, rows

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


@pytest.mark.parametrize("name", PARTS)
def test_the_longest_context_is_the_last_before_one_that_does_not_fit(name):
    def whole(memory=None):
        query = ContextQuery(lengths=LENGTHS, item_bytes=2, memory=memory)
        return rows([Layer(name, tuple(PARTS[name]), None)], query)[-2]

    sizes = whole().at
    for memory in (sizes[0], sizes[99], sizes[199], sizes[302]):
        fitting = next((n for n, size in enumerate(sizes) if size > memory), len(sizes))
        longest = whole(memory).longest
        # what is said never needs more, and less than a pool longer does
        least = fitting - (16 if name == "pools" else 0)
        assert least <= longest <= (math.inf if fitting == len(LENGTHS) else fitting)
    assert whole(sizes[0] - 1).longest == 0
