"""The decision rule: its rates on simulated pairs, and each of its guards."""

import math

import numpy as np
import pytest

from attnbench.gate.cases import CheckPlan
from attnbench.gate.rule import (
    Evidence,
    Pair,
    Stage,
    Statistic,
    contaminated,
    effect,
    judge,
    mean_of,
    settled,
    suspected,
)
from attnbench.gate.selftest import detection

THRESHOLD = 0.02
NOISE = 0.01  # of one pair, on a shared machine


def pairs(logs):
    """Pairs of processes in which all calls change alike."""
    return tuple(Pair(x, x, x) for x in logs)


def evidence(shift=0.0, noise=NOISE, seed=0, second=True, again=0.0, name="case"):
    draw = np.random.default_rng(seed)

    def stage(count):
        return Stage(
            head=pairs(draw.normal(math.log1p(shift), noise, count)),
            again=pairs(draw.normal(again, noise, count)),
        )

    return Evidence(name=name, first=stage(6), second=stage(10) if second else Stage())


def called(shift, trials=250, noise=NOISE):
    verdicts = [
        judge([evidence(shift, noise, seed)], THRESHOLD)[0].verdict for seed in range(trials)
    ]
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
        trials = [evidence(seed=1000 * run + i, noise=0.03) for i in range(50)]
        alarms += sum(j.verdict in ("slower", "faster") for j in judge(trials, THRESHOLD))
    assert alarms <= 3  # of 500


def test_the_interval_covers_the_truth():
    draw = np.random.default_rng(3)
    holds = 0
    for _ in range(1000):
        found = effect(draw.normal(0.03, NOISE, 6))
        holds += found.low <= 0.03 <= found.high
    assert 980 <= holds <= 998  # of 99 %


def test_a_change_below_the_threshold_is_ignored():
    certain = evidence(0.015, noise=0.0005)
    assert effect(certain.view(Statistic.TYPICAL).first).excludes_zero
    assert judge([certain], THRESHOLD)[0].verdict == "same"


def test_a_change_within_twice_the_noise_floor_is_ignored():
    doubtful = evidence(0.03, noise=0.001, again=0.02)
    assert doubtful.view(Statistic.TYPICAL).floor == pytest.approx(0.02, rel=0.05)
    assert judge([doubtful], THRESHOLD)[0].verdict == "same"
    # and where that is much, the verdict is not `same`
    assert judge([evidence(0.05, noise=0.001, again=0.03)], THRESHOLD)[0].verdict == "unsure"
    assert judge([evidence(0.07, noise=0.001, again=0.03)], THRESHOLD)[0].verdict == "slower"


def test_a_suspicion_is_called_only_if_the_second_stage_agrees():
    first = evidence(0.10).first
    for second in (evidence(0.0).second, evidence(-0.10).second):
        judged = judge([Evidence(name="", first=first, second=second)], THRESHOLD)[0]
        assert judged.verdict not in ("slower", "faster")
    alone = judge([Evidence(name="", first=first)], THRESHOLD)[0]
    assert (alone.verdict, alone.reason) == (
        "unsure",
        "suspected; no time was left to confirm it",
    )


def test_the_reported_effect_is_that_of_the_second_stage():
    first, second = evidence(0.30).first, evidence(0.10).second
    judged = judge([Evidence(name="", first=first, second=second)], THRESHOLD)[0]
    assert math.exp(judged.effect.point) == pytest.approx(1.10, abs=0.02)


def test_too_few_pairs_never_pass():
    few = Evidence(name="", first=Stage(head=pairs((0.0, 0.0)), again=pairs((0.0, 0.0))))
    assert judge([few], THRESHOLD)[0].verdict == "unsure"
    assert not settled(few, THRESHOLD)
    assert not suspected(few, THRESHOLD)


def test_equal_pairs_have_no_spread_and_a_verdict():
    flat = Stage(head=pairs((0.0,) * 6), again=pairs((0.0,) * 6))
    steep = Stage(head=pairs((0.5,) * 6), again=pairs((0.0,) * 6))
    assert judge([Evidence(name="", first=flat)], THRESHOLD)[0].verdict == "same"
    judged = judge([Evidence(name="", first=steep, second=steep)], THRESHOLD)[0]
    assert judged.verdict == "slower"


def test_base_against_base_that_differs_contaminates():
    dirty = evidence(again=0.05, name="dirty", seed=5)
    assert contaminated([dirty, evidence(name="clean")], THRESHOLD) == ("dirty",)
    small = sum(bool(contaminated([evidence(seed=seed)], THRESHOLD)) for seed in range(300))
    assert small <= 3


def test_the_geometric_mean_goes_pair_by_pair():
    nothing = (0.0, 0.0, 0.0)
    a = Evidence(name="a", first=Stage(head=pairs((0.1, 0.2, 0.3)), again=pairs(nothing)))
    b = Evidence(name="b", first=Stage(head=pairs((0.3, 0.2, 0.1)), again=pairs((0.0, 0.0, 0.2))))
    mean = mean_of("both", [a, b]).view(Statistic.TYPICAL)
    assert mean.first == pytest.approx((0.2, 0.2, 0.2))
    assert mean.again == pytest.approx((0.0, 0.0, 0.1))
    assert mean.second == ()


def test_detection_counts_the_verdicts_of_checks():
    draw = np.random.default_rng(1)
    logs = {
        share: pairs(draw.normal(math.log1p(share), NOISE, 40)) for share in (0.0, 0.02, 0.1, 0.2)
    }
    found = detection(logs, pairs(draw.normal(0, NOISE, 40)), CheckPlan())
    assert found.false_alarms.checks == 15  # windows of 10 and 16 pairs
    assert found.false_alarms.slower == 0
    assert found.smallest == 0.1
    blind = detection({0.0: logs[0.0], 0.2: logs[0.0]}, logs[0.02], CheckPlan())
    assert blind.smallest is None


def test_an_unsure_verdict_with_an_interval_without_zero_says_why():
    again = pairs((0.0,) * 10)
    above = pairs((0.0183, 0.0193, 0.0203, 0.0193, 0.0173, 0.0213))
    near = Evidence(name="", first=Stage(head=above, again=again))
    judged = judge([near], THRESHOLD)[0]
    assert judged.verdict == "unsure"
    assert judged.effect.excludes_zero
    assert "there is a change, but it may be below the limit of 2.0 %" in judged.reason
    late = pairs((0.02, 0.06, 0.10, 0.02, 0.06, 0.0))
    shown = Evidence(
        name="", first=Stage(head=late, again=again), second=Stage(head=pairs((0.06, 0.05, 0.07)))
    )
    judged = judge([shown], THRESHOLD)[0]
    assert judged.effect.excludes_zero
    assert "not suspected at first; all pairs together show it" in judged.reason
    first = Stage(head=pairs((0.06, 0.05, 0.07) * 2), again=again)
    for logs, words in [
        ((0.03, 0.2, 0.01), "suspected at first; the second measurement is too noisy"),
        ((0.00, 0.03, 0.01), "a second measurement shows no more than 2.0 %"),
    ]:
        judged = judge([Evidence(name="", first=first, second=Stage(head=pairs(logs)))], THRESHOLD)[
            0
        ]
        assert judged.verdict == "unsure"
        assert words in judged.reason
