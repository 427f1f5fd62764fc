"""How many pairs a case needs, and what a budget is spent on."""

import math
from dataclasses import replace

import numpy as np
import pytest

from attnbench.commands.check import pairs, rule
from attnbench.commands.check.cases import CheckPlan
from attnbench.commands.check.pairs import (
    Allotment,
    deviation,
    pairs_needed,
    probable_change,
    usual_spread,
)
from attnbench.commands.check.rule import Statistic, View
from tests.benchmarks.gate_worlds import Tally, World, world
from tests.doubles.checks import Noisy, simulated

USUAL = dict.fromkeys(Statistic, 0.01)


def views(first=(), again=(), second=()):
    """A case in which both statistics have these log ratios."""
    return [View(one, 0.02, tuple(first), tuple(second), tuple(again)) for one in Statistic]


@pytest.mark.parametrize("noise", [0.002, 0.01, 0.03])
def test_what_is_needed_is_about_what_it_takes(noise):
    """Of 200 unchanged cases, most are the same after as many as their first pairs promised."""
    ended = list[bool]()
    for seed in range(200):
        draw = np.random.default_rng(seed)
        logs, again = draw.normal(0, noise, (2, 64))
        wanted = pairs_needed(views(logs[:4], again[:4]), dict.fromkeys(Statistic, noise), 64)
        taken = int(min(wanted, 64))
        assert taken >= 4
        ended.append(rule.is_settled(views(logs[:taken], again[:taken])))
    assert np.mean(ended) >= 0.5


def test_more_noise_needs_more_pairs_and_too_much_more_than_there_are():
    wanted = [
        pairs_needed(views((0.0,) * 4, (noise, -noise) * 2), dict.fromkeys(Statistic, noise), 64)
        for noise in (0.0, 0.005, 0.02, 0.04)
    ]
    assert wanted == sorted(wanted)
    assert wanted[0] == pairs.EARLIEST
    hopeless = pairs_needed(views((0.0,) * 4, (0.5, -0.5) * 2), dict.fromkeys(Statistic, 0.5), 64)
    assert math.isinf(hopeless)


def test_a_difference_that_noise_explains_is_taken_for_none():
    assert probable_change((0.02,), 0.03) == 0.0
    assert probable_change((0.5,) * 4, 0.01) == pytest.approx(0.5, rel=0.01)
    assert probable_change((), 0.01) == 0.0
    assert probable_change((-0.5,) * 4, 0.01) == pytest.approx(-0.5, rel=0.01)


def test_the_spread_of_few_pairs_leans_on_that_of_other_cases():
    lonely, known = views((0.0,), (0.001,)), views((0.0, 0.1) * 10, (0.05, -0.05) * 10)
    assert 0.005 < deviation(lonely[0], USUAL) < 0.01
    assert deviation(known[0], USUAL) == pytest.approx(0.05, rel=0.1)
    spreads = usual_spread([lonely, known, views()])
    assert set(spreads) == {*Statistic}
    assert all(0.001 <= spread <= 0.06 for spread in spreads.values())
    assert usual_spread([]) == USUAL


def test_a_case_is_not_decided_before_as_many_pairs_as_are_planned_where_there_is_time():
    plan = CheckPlan(budget_s=None)
    assert Allotment.for_pairs(plan, math.inf).earliest == plan.looks[0]
    assert Allotment.for_pairs(plan, 100.0).whole
    short = Allotment.for_pairs(plan, 5.0)
    assert (short.earliest, short.whole) == (pairs.EARLIEST, False)
    few = Allotment.for_pairs(replace(plan, looks=(3, 3)), 5.0)
    assert few.earliest == 3


def test_what_is_slower_is_confirmed_by_as_many_pairs_as_are_planned():
    looks, report = simulated(2000.0, 1.0, 1.5, 1.0)
    assert [len(case.looks[1]) for case in looks.cases] == [16, 0]
    looks, report = simulated(48.0, 1.0, 1.5, 1.0)
    assert [len(look) for look in looks.cases[0].looks] == [5, 5]
    assert report.failures


def test_the_largest_change_is_timed_first():
    """Though the others would be decided in less time."""
    ratios = (1.0, 1.0, 1.0, 1.04, 3.0, 1.0)
    looks, report = simulated(30.0, 1.0, *ratios)
    assert len(looks.cases[4].visits) == max(len(case.visits) for case in looks.cases)
    assert [finding.case for finding in report.failures] == ["m:f4"]


def test_noisy_cases_wait_until_the_others_are_decided():
    placement = {f"m:f{n}": 0.08 if n < 2 else 0.002 for n in range(10)}
    draw = np.random.default_rng(0)
    about = {"race": Noisy, "draw": draw, "placement": placement, "jitter": 0.002}
    _, report = simulated(150.0, 1.0, *[1.0] * 10, **about)
    decided = {finding.case for finding in report.findings if finding.is_decided}
    assert len(decided - {"m:f0", "m:f1"}) >= 7
    undecided = [finding for finding in report.findings if not finding.is_decided]
    assert all(finding.decided_by for finding in undecided)


def test_in_simulated_repositories_no_unchanged_one_is_red_and_large_changes_are_found():
    tally = Tally()
    for seed in range(24):
        one = world(seed)
        if len(one.ratios) <= 20:
            tally.add(replace(one, pairs=12.0))
    assert not tally.unchanged[1]
    large = {key[2]: number for key, number in tally.verdicts.items() if key[0] >= 1.5}
    assert set(large) == {"slower"}
    assert tally.verdicts[1.0, 12.0, "slower"] == 0


def test_a_world_is_the_same_again():
    assert world(3) == world(3)
    assert isinstance(world(3), World)
