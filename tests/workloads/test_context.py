"""Bytes of layers beside a count of all lengths one by one."""

import math

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


@pytest.mark.parametrize("name", PARTS)
def test_the_longest_context_and_the_break_even_are_those_of_a_search(name):
    asked = Asked(lengths=LENGTHS, item_bytes=2, batch=3, memory=3 * 3000)
    kept = Kept.of(PARTS[name], FULL, asked)
    over = [n for n, size in zip(LENGTHS, kept.at, strict=True) if size > asked.memory]
    assert kept.longest == (over[0] - 1 if over else pytest.approx(kept.longest, abs=0))
    assert over or kept.longest >= LENGTHS[-1]
    full = [3 * 2 * FULL * n for n in LENGTHS]
    dearer = [n for n, a, b in zip(LENGTHS, kept.at, full, strict=True) if a >= b]
    if kept.break_even is None:
        assert dearer == list(LENGTHS)
    else:
        assert max(dearer, default=0) < kept.break_even <= LENGTHS[-1]
    # of what does not come in steps, it is the very first length
    if name != "pools":
        assert kept.break_even in (None, max(dearer, default=0) + 1)


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
