"""Bytes of layers beside a count of all lengths one by one."""

import math
from itertools import takewhile

import pytest

from attnbench.workloads.context import Asked, Kept, Layer, Part, context

FULL = 32  # numbers per token
PARTS = {
    "all": [Part(FULL)],
    "window": [Part(FULL, most=9)],
    "state": [Part(1000, most=1, item_bytes=4)],
    "pools": [Part(8, every=16), Part(16, every=16, rest=True), Part(4, most=7)],
    "half": [Part(FULL // 2), Part(700, most=1)],
    "more": [Part(FULL), Part(4)],
}
LENGTHS = tuple(range(1, 400))


def at_all_lengths(name, memory=None):
    asked = Asked(lengths=LENGTHS, item_bytes=2, batch=3, memory=memory)
    return Kept.of(PARTS[name], FULL, asked)


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("length", [1, 100, 200, 303])
def test_the_longest_context_is_the_last_before_one_that_does_not_fit(name, length):
    sizes = at_all_lengths(name).at
    memory = sizes[length - 1]
    fitting = len(list(takewhile(lambda n: sizes[n - 1] <= memory, LENGTHS)))
    longest = at_all_lengths(name, memory).longest
    if fitting == len(LENGTHS):
        assert longest >= fitting
    else:  # what is said never needs more, and less than a pool longer does
        assert fitting - (16 if name == "pools" else 0) <= longest <= fitting


@pytest.mark.parametrize("name", PARTS)
def test_from_the_break_even_on_full_attention_keeps_more(name):
    kept = at_all_lengths(name)
    pairs = zip(LENGTHS, kept.at, strict=True)
    dearer = [n for n, size in pairs if size >= 3 * 2 * FULL * n]
    if kept.break_even is None:
        assert dearer == list(LENGTHS)
    else:
        assert max(dearer, default=0) < kept.break_even <= LENGTHS[-1]
        # where nothing comes in steps it is the very first such length
        assert name == "pools" or kept.break_even == max(dearer, default=0) + 1


def test_a_state_fits_at_any_length_or_at_none():
    def longest(memory):
        return Kept.of(PARTS["state"], None, Asked(lengths=(), item_bytes=2, memory=memory)).longest

    assert longest(4000) == math.inf
    assert longest(3999) == 0


def test_full_attention_of_unknown_size_is_compared_with_nothing():
    layers = [Layer(kind="state", needed=(), transformers=(), full=None)]
    kept = context(layers, Asked(lengths=(1, 2), item_bytes=2))
    assert kept.full is None
    assert kept.times == ()
    assert kept.whole.needed.break_even is None
