"""The decision rule: its rates on simulated pairs and samples, and each of its guards."""

import json
import math
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.commands.check.cases import AGAIN, BASE, HEAD, CheckedCase
from attnbench.commands.check.rule import (
    BOUND,
    Statistic,
    View,
    effect,
    is_settled,
    is_suspected,
    log_ratio,
    mean,
    rulings,
)
from attnbench.records import Selection

THRESHOLD, SAMPLES = 0.02, 40
TRIALS = Path(__file__).parents[3] / "reports/gate/gate.json"
FIRST = 10  # pairs of a first look
NOISE = 0.01  # of one pair, on a shared machine

times = st.lists(st.floats(1e-4, 1.0), min_size=8, max_size=8)


def views(first, second=(), again=()):
    """A case in which all calls change alike, so that both statistics have these log ratios."""
    return [View(one, THRESHOLD, tuple(first), tuple(second), tuple(again)) for one in Statistic]


def look(shift=0.0, noise=NOISE, seed=0, count=6):
    """The log ratios of a look."""
    return tuple(np.random.default_rng(seed).normal(math.log1p(shift), noise, count))


def drawn(shift=0.0, noise=NOISE, seed=0, again=0.0):
    """A case in two looks; `again` is the log ratio of base to itself."""
    draw, log = np.random.default_rng(seed), math.log1p(shift)
    return views(*(draw.normal(mean, noise, n) for mean, n in ((log, 6), (log, 10), (again, 16))))


def ruled(*looks):
    """The ruling on a case with these looks."""
    return rulings([views(*looks)])[0]


def verdict(shift=0.0, noise=NOISE, seed=0, again=0.0):
    return rulings([drawn(shift, noise, seed, again)])[0].verdict


def called(shift, trials=250, noise=NOISE):
    verdicts = [verdict(shift, noise, seed) for seed in range(trials)]
    return {name: verdicts.count(name) / trials for name in ("slower", "faster", "same", "unsure")}


def test_rates_of_the_rule_on_simulated_pairs():
    nothing, five, ten = called(0.0), called(0.05), called(0.10)
    assert nothing["slower"] + nothing["faster"] <= 0.005
    assert nothing["same"] > 0.9
    assert five["slower"] >= 0.8
    assert ten["slower"] >= 0.99
    assert called(-0.10)["faster"] >= 0.99


def test_on_a_noisy_machine_the_verdict_is_unsure_and_not_wrong():
    noisy = called(0.0, noise=0.05)
    assert noisy["slower"] + noisy["faster"] <= 0.01
    assert noisy["unsure"] > 0.3
    assert called(0.05, noise=0.05)["same"] < 0.3


def test_a_long_list_raises_no_more_false_alarms():
    alarms = 0
    for run in range(10):
        trials = [drawn(seed=1000 * run + i, noise=0.03) for i in range(50)]
        alarms += sum(found.verdict in ("slower", "faster") for found in rulings(trials))
    assert alarms <= 3  # of 500


def test_a_change_below_the_threshold_is_ignored():
    certain = drawn(0.015, noise=0.0005)
    assert effect(certain[0].first).excludes_zero
    ruling = rulings([certain])[0]
    assert (ruling.verdict, ruling.reason) == ("same", "")


def test_a_change_within_twice_the_noise_floor_is_ignored():
    doubtful = drawn(0.03, noise=0.001, again=0.02)
    assert doubtful[0].floor == pytest.approx(0.02, rel=0.05)
    ruling = rulings([doubtful])[0]
    assert (ruling.verdict, ruling.effect.excludes_zero) == ("same", True)
    assert re.fullmatch(r"its noise hides changes below (3\.9|4\.\d) %", ruling.reason)
    # and where that is much, the verdict is not `same`
    assert verdict(0.05, noise=0.001, again=0.03) == "unsure"
    assert verdict(0.07, noise=0.001, again=0.03) == "slower"


def test_a_suspicion_is_called_only_if_the_second_look_agrees():
    """And with the effect of the second look."""
    for shift in (0.0, -0.10):
        assert ruled(look(0.10), look(shift, seed=1)).verdict not in ("slower", "faster")
    found = ruled(look(0.30), look(0.10, seed=1))
    assert found.verdict == "slower"
    assert math.exp(found.effect.point) == pytest.approx(1.10, abs=0.02)


@pytest.mark.parametrize(
    ("shift", "verdict"), [(0.05, "unsure"), (0.10, "slower"), (-0.05, "unsure"), (-0.10, "faster")]
)
def test_without_time_to_confirm_only_what_is_three_times_the_threshold_is_called(shift, verdict):
    first = look(shift, noise=0.005)
    alone = ruled(first)
    assert is_suspected(views(first))
    assert (alone.verdict, alone.reason) == (verdict, "no time was left to confirm")
    noisy = [math.log1p(shift) * k for k in (0.4, 1.0, 2.0)]
    assert ruled(first, noisy).verdict == verdict
    assert ruled(first, (0.0, 0.001, -0.001)).verdict == "same"


def test_what_one_memory_layout_alone_shows_is_no_change():
    """Pairs of a look take two layouts by turns, and one may favour a side in all of its pairs."""
    first = look(0.05, noise=0.003)
    placed = tuple(0.06 * (pair % 2) + 0.001 * (pair % 3) for pair in range(10))
    assert effect(placed).point > math.log1p(THRESHOLD)
    assert ruled(first, placed).verdict == "unsure"
    assert ruled(first, look(0.03, noise=0.003, seed=1, count=10)).verdict == "slower"


def test_too_few_pairs_never_pass():
    few = views((0.0, 0.0), (), (0.0, 0.0))
    assert rulings([few])[0].verdict == "unsure"
    assert not is_settled(few)
    assert not is_suspected(few)


def test_equal_pairs_have_no_spread_and_a_verdict():
    flat = (0.0,) * 6
    assert ruled(flat, (), flat).verdict == "same"
    assert ruled((0.5,) * 6, (0.5,) * 6, flat).verdict == "slower"


def test_an_unsure_verdict_with_an_interval_without_zero_says_why():
    again = (0.0,) * 10
    judged = ruled((0.0183, 0.0193, 0.0203, 0.0193, 0.0173, 0.0213), (), again)
    assert judged.verdict == "unsure"
    assert judged.effect.excludes_zero
    assert "there is a change, but it need not exceed the limit of 2.0 %" in judged.reason
    for logs in ((0.03, 0.2, 0.01), (0.00, 0.03, 0.01)):
        judged = ruled((0.06, 0.05, 0.07) * 2, logs, again)
        assert judged.verdict == "unsure"
        assert "a second measurement does not confirm it" in judged.reason


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


def judged_on(seed, head):
    """The ruling of a check on `head`, with a second look where the first is not enough."""
    draw, case = np.random.default_rng(seed), CheckedCase(selection=Selection(name="m"))
    sides = {BASE: process, HEAD: head, AGAIN: process}
    for look, count in zip(case.looks, (6, 10), strict=True):
        look += [{side: taken(draw) for side, taken in sides.items()} for _ in range(count)]
        if is_settled(case.views(THRESHOLD)):
            break
    return rulings([case.views(THRESHOLD)])[0]


@pytest.mark.parametrize(("every", "share"), [(5, 0.5), (5, -0.4), (10, 1.0), (3, 0.3)])
def test_a_change_of_some_calls_is_found(every, share):
    found = [judged_on(seed, partial(slowed, every=every, share=share)) for seed in range(40)]
    wanted = "slower" if share > 0 else "faster"
    assert sum(judged.verdict == wanted for judged in found) >= 38
    called = [judged for judged in found if judged.verdict == wanted]
    points = [math.expm1(judged.effect.point) for judged in called]
    assert np.median(points) == pytest.approx(share / every, abs=0.02)


def test_a_reason_says_that_only_some_calls_are_slower():
    judged = judged_on(0, partial(slowed, every=5, share=0.5))
    assert judged.reason == "on average over all calls"
    even = judged_on(0, partial(slowed, every=1, share=0.1))
    assert (even.verdict, even.reason, even.statistic) == ("slower", "", "typical")


def test_heavy_tails_alone_raise_no_alarm():
    calls = [judged_on(seed, process).verdict for seed in range(300)]
    assert sum(call in ("slower", "faster") for call in calls) <= 3
    assert calls.count("same") > 240


def test_the_typical_call_does_not_see_a_burst():
    burst = [1.05] * 30 + [9.0] * 10
    assert log_ratio(Statistic.TYPICAL, [1.0] * 40, burst) == pytest.approx(math.log(1.05))


def test_one_stall_counts_for_at_most_its_bound():
    assert mean([1.0] * 39 + [1000.0]) == pytest.approx((39 + BOUND) / 40)
    assert mean([1.0] * 32 + [1.5] * 8) == pytest.approx(1.1)


@pytest.mark.parametrize("one", Statistic)
@given(times, times, st.floats(0.1, 10.0))
def test_a_reversed_pair_has_the_opposite_sign_and_no_unit(one, base, head, unit):
    log, longer = log_ratio(one, base, head), [unit * t for t in base]
    assert log_ratio(one, head, base) == pytest.approx(-log, abs=1e-9)
    assert log_ratio(one, longer, [unit * t for t in head]) == pytest.approx(log, abs=1e-9)
    assert log_ratio(one, base, longer) == pytest.approx(math.log(unit), abs=1e-9)


def test_every_stored_trial_gets_its_verdict_again():
    """Of 837 real checks with and without a slowdown, each by the rule as it is now."""
    for trial in json.loads(TRIALS.read_text())["trials"]:
        case = []
        for index, one in enumerate(Statistic):
            pairs, again = ([pair[index] for pair in trial[name]] for name in ("pairs", "again"))
            case.append(View(one, THRESHOLD, (*pairs[:FIRST],), (*pairs[FIRST:],), (*again,)))
        assert rulings([case])[0].verdict == trial["verdict"], trial
