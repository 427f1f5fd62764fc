"""From samples to a verdict: changes of all calls and of some, under noise with heavy tails."""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.gate.rule import BOUND, Evidence, Pair, Stage, effect, judge, mean, settled

THRESHOLD, SAMPLES = 0.02, 40

times = st.lists(st.floats(1e-4, 1.0), min_size=8, max_size=8)


def process(draw):
    """Samples of one process: placement of pages, noise, and occasional disturbances."""
    placed = draw.normal(0, 0.008)
    noise = 0.04 * draw.standard_t(3, SAMPLES)
    stalls = (draw.random(SAMPLES) < 0.02) * draw.exponential(0.5, SAMPLES)
    return 0.006 * np.exp(placed + noise + stalls)


def slowed(draw, every, share):
    """Samples of a process in which each `every`-th call takes `share` longer."""
    calls = np.arange(SAMPLES) + draw.integers(every)
    return process(draw) * (1 + share * (calls % every == 0))


def verdict(seed, head):
    """The verdict of a check on `head`, with a second stage where the first is not enough."""
    draw = np.random.default_rng(seed)

    def stage(count):
        pairs = []
        for _ in range(count):
            base = process(draw)
            pairs.append((Pair.of(base, head(draw)), Pair.of(base, process(draw))))
        return Stage(head=tuple(p[0] for p in pairs), again=tuple(p[1] for p in pairs))

    evidence = Evidence(name="", first=stage(6))
    if not settled(evidence, THRESHOLD):
        evidence = Evidence(name="", first=evidence.first, second=stage(10))
    return judge([evidence], THRESHOLD)[0]


@pytest.mark.parametrize(("every", "share"), [(5, 0.5), (5, -0.4), (10, 1.0), (3, 0.3)])
def test_a_change_of_some_calls_is_found(every, share):
    found = [verdict(seed, partial(slowed, every=every, share=share)) for seed in range(40)]
    wanted = "slower" if share > 0 else "faster"
    assert sum(judged.verdict == wanted for judged in found) >= 38
    called = [judged for judged in found if judged.verdict == wanted]
    points = [math.expm1(judged.effect.point) for judged in called]
    assert np.median(points) == pytest.approx(share / every, abs=0.02)


def test_a_reason_says_that_calls_vary_more_than_before():
    judged = verdict(0, partial(slowed, every=5, share=0.5))
    assert judged.reason.startswith("on average over all calls")
    assert "calls vary more than on base" in judged.reason
    assert "the slowest tenth +" in judged.reason
    even = verdict(0, partial(slowed, every=1, share=0.1))
    assert (even.verdict, even.reason, even.statistic) == ("slower", "", "typical")


def test_heavy_tails_alone_raise_no_alarm():
    calls = [verdict(seed, process).verdict for seed in range(300)]
    assert sum(call in ("slower", "faster") for call in calls) <= 3
    assert calls.count("same") > 240


def test_the_typical_call_does_not_see_a_burst():
    burst = [1.05] * 30 + [9.0] * 10
    assert Pair.of([1.0] * 40, burst).typical == pytest.approx(math.log(1.05))


def test_one_stall_counts_for_at_most_its_bound():
    assert mean([1.0] * 39 + [1000.0]) == pytest.approx((39 + BOUND) / 40)
    assert mean([1.0] * 32 + [1.5] * 8) == pytest.approx(1.1)


@given(times, times, st.floats(0.1, 10.0))
def test_a_reversed_pair_has_the_opposite_sign_and_no_unit(base, head, unit):
    pair = Pair.of(base, head)
    assert Pair.of(head, base) == pytest.approx([-x for x in pair], abs=1e-9)
    scaled = Pair.of([unit * t for t in base], [unit * t for t in head])
    assert scaled == pytest.approx(pair, abs=1e-9)
    assert Pair.of(base, [unit * t for t in base]) == pytest.approx([math.log(unit)] * 3, abs=1e-9)


@given(st.lists(st.floats(-1, 1), min_size=3, max_size=20))
def test_an_interval_contains_its_point(logs):
    found = effect(logs)
    assert found.low <= found.point <= found.high
    assert 0 <= found.p <= 1
