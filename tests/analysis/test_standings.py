"""Simultaneous comparisons: that equal series are told apart in few sweeps, and what groups are."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.analysis.report import analyse
from attnbench.analysis.standings import Margin, Standings, joint_quantiles, places
from attnbench.analysis.statistics.estimate import student_quantile
from attnbench.analysis.statistics.ratios import Ratios, means
from attnbench.analysis.summary import summary
from attnbench.records import Mode
from tests import sweeps
from tests.benchmarks.coverage import BLOCKS, SITUATIONS, ratios

EQUAL = ("a", "b", "c", "d")  # mechanisms that `sweeps` gives the same cost
FEW = {"lengths": (128, 512, 2048), "samples": 2}


def told_apart(drawn, pairs, series):
    """For each of some simulated sweeps of equal series, whether any two are told apart."""
    sizes = (series,) * BLOCKS
    found = [means(logs, pairs) for logs in drawn]
    apart = np.array([np.abs(each.log / each.se).ravel() for each in found])
    df = np.array([each.df.ravel() for each in found])
    # the smallest factor is that of the most degrees of freedom: others need not be known
    far = apart > joint_quantiles(sizes, np.array([np.inf]))
    factors = np.full(df.shape, np.inf)
    factors[far] = joint_quantiles(sizes, df[far])
    return (apart > factors).any(axis=1)


@pytest.mark.parametrize(
    "situation",
    [*(pytest.param(each, marks=pytest.mark.long) for each in ("processes", "drift")), "all"],
)
def test_equal_series_are_told_apart_in_few_sweeps(situation):
    false = 0
    for series in (2, 5):
        drawn, pairs = ratios(SITUATIONS[situation], series, 3, 300, np.random.default_rng(series))
        false += told_apart(drawn, pairs, series).sum()
    assert false <= 41  # of 600; at a rate of 5 % more are rarer than 2 %


@pytest.mark.long
def test_no_fastest_is_named_among_equal_series_in_most_sweeps():
    """From the samples to the answers, for times that were not taken in turns."""
    false = 0
    for seed in range(40):
        whole = sweeps.sweep(EQUAL, modes=(Mode.INFERENCE,), seed=seed, end=lambda _: None, **FEW)
        winners = analyse(whole).answers.fastest
        assert len(winners) == 3
        false += any(winner.runner_up is not None for winner in winners)
    assert false <= 5  # of 40; at a rate of 5 % more are rarer than 2 %


def test_series_that_differ_are_told_apart():
    whole = sweeps.sweep(("fastformer", "transformer", "longformer"), restart=0.01, **FEW)
    cases = summary(whole)
    found = Standings(cases, Ratios(whole))
    margin = found.margin("longformer:eager", "fastformer:eager", "training", 512)
    assert margin.costs_more
    assert margin.factor == pytest.approx(4 / 1.1, rel=0.1)
    back = found.margin("fastformer:eager", "longformer:eager", "training", 512)
    assert (back.factor, back.low, back.high) == pytest.approx(
        (1 / margin.factor, 1 / margin.high, 1 / margin.low)
    )
    assert not found.margin("fastformer:eager", "longformer:eager", "training", 64).has_interval


def test_one_block_has_the_intervals_of_student_and_of_tukeys_tables():
    for df in (1.0, 3.0, 20.0, math.inf):
        (factor,) = joint_quantiles((2,), np.array([df]))
        assert factor == pytest.approx(student_quantile(0.95, df), rel=1e-4)
    for series, df, printed in ((3, 10, 3.877), (5, 2, 10.88), (10, 20, 5.008)):
        (factor,) = joint_quantiles((series,), np.array([df]))
        assert factor * math.sqrt(2) == pytest.approx(printed, abs=0.006)


def test_more_series_and_more_blocks_widen_the_intervals():
    df = np.array([4.0, math.nan, 40.0])
    one, series, blocks = (joint_quantiles(sizes, df) for sizes in ((3,), (9,), (3,) * 10))
    for wider in (series, blocks):
        assert (wider > one)[[0, 2]].all()
        assert np.isnan(wider[1])


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=7), st.floats(0, 1), st.data())
def test_groups_are_the_series_in_order_and_each_leads_those_that_tie(logs, half, data):
    names = [f"s{i}" for i in range(len(logs))]
    noise = {
        pair: data.draw(st.floats(-0.2, 0.2)) for pair in ((a, b) for a in names for b in names)
    }

    def margin(a, b):
        swing = noise[a, b] - noise[b, a]
        return Margin.of(logs[names.index(a)] - logs[names.index(b)] + swing, half)

    order = places(names, margin)
    found = [
        [place.series for place in order if place.rank == rank]
        for rank in dict.fromkeys(place.rank for place in order)
    ]
    assert sorted(place.series for place in order) == names
    for group, *others in (found[i:] for i in range(len(found))):
        first, *ties = group
        assert not any(margin(name, first).costs_more for name in ties)
        assert all(margin(name, first).costs_more for other in others for name in other)
    if len(found) > 1 and not any(margin(found[0][0], name).costs_more for name in names):
        assert all(margin(name, found[0][0]).low > 1 for group in found[1:] for name in group)


@given(st.floats(-1e4, 1e4), st.floats(0, 1e6))
def test_a_margin_never_overflows(log, half):
    margin = Margin.of(log, half)
    assert 0 <= margin.low <= margin.factor <= margin.high
    assert margin.has_interval
