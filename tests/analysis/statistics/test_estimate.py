import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.analysis.statistics.estimate import (
    IntervalKind,
    median_interval,
    over_rounds,
    p_value,
    student_quantile,
)

CASES, ROUNDS = 20, 3
Draw = Callable[[np.random.Generator], np.ndarray]


def covered(draw: Draw, sweeps: int = 300) -> np.ndarray:
    """How often the interval of each case contains 1, the true value; draws are [cases, rounds]."""
    rng = np.random.default_rng(0)
    hits = np.zeros(CASES)
    for _ in range(sweeps):
        logs = draw(rng)
        hits += [found.low <= 1 <= found.high for found in over_rounds(logs.tolist())]
    return hits / sweeps


def normal(rng: np.random.Generator) -> np.ndarray:
    return 0.03 * rng.standard_normal((CASES, ROUNDS))


def skewed(rng: np.random.Generator) -> np.ndarray:
    return 0.03 * (rng.exponential(size=(CASES, ROUNDS)) - 1)


def heavy(rng: np.random.Generator) -> np.ndarray:
    return 0.02 * rng.standard_t(3, size=(CASES, ROUNDS))


def unequal(rng: np.random.Generator) -> np.ndarray:
    return np.geomspace(0.01, 0.1, CASES)[:, None] * rng.standard_normal((CASES, ROUNDS))


def drifting(rng: np.random.Generator) -> np.ndarray:
    """The machine slows by 10 % from the first visit to the last; each round is shuffled."""
    logs = 0.02 * rng.standard_normal((CASES, ROUNDS))
    for turn in range(ROUNDS):
        place = turn * CASES + rng.permutation(CASES)
        logs[:, turn] += 0.1 * (place / (CASES * ROUNDS) - 0.5)
    return logs


# the docstring of the module has the coverage found
@pytest.mark.parametrize(
    ("draw", "least", "most"),
    [
        (normal, 0.935, 0.965),
        (skewed, 0.90, 0.95),
        (heavy, 0.935, 0.97),
        (unequal, 0.925, 0.965),
        (drifting, 0.98, 1.0),
    ],
)
def test_intervals_over_rounds_cover_the_truth_as_often_as_claimed(
    draw: Draw, least: float, most: float
):
    found = covered(draw)
    assert least < found.mean() <= most
    assert found[-3:].mean() > 0.84, "the noisiest of unlike cases keep wide intervals"


@pytest.mark.parametrize("count", [6, 9, 25, 200, 1200])
@pytest.mark.parametrize("name", ["exponential", "standard_cauchy"])
def test_intervals_of_the_median_cover_it_for_any_distribution(name: str, count: int):
    rng = np.random.default_rng(1)
    median = math.log(2) if name == "exponential" else 0.0
    samples = np.exp(getattr(rng, name)(size=(600, count)).clip(-300, 300))
    found = [median_interval(row) for row in samples]
    hits = [math.log(e.low) <= median <= math.log(e.high) for e in found]
    assert 0.93 < np.mean(hits) <= 1.0


def test_too_few_samples_have_a_point_and_no_interval():
    found = median_interval([1.0, 3.0, 2.0])
    assert found.point == 2.0
    assert math.isnan(found.low)
    assert found.kind is IntervalKind.NONE


def test_equal_samples_give_an_interval_of_zero_width():
    found = median_interval([2.0] * 9)
    assert (found.low, found.point, found.high, found.log_se) == (2.0, 2.0, 2.0, 0.0)


def test_without_repetition_there_is_no_spread():
    assert over_rounds([[0.1], [0.2], []]) is None


def test_a_single_round_takes_the_spread_of_the_others():
    rng = np.random.default_rng(2)
    groups = [list(0.05 * rng.standard_normal(3)) for _ in range(30)] + [[0.4]]
    alone = over_rounds(groups)[-1]
    assert alone.kind is IntervalKind.ROUNDS
    assert alone.log_se == pytest.approx(0.05, rel=0.3)


def test_equal_rounds_give_zero_width_and_zero_error():
    groups = [[0.3, 0.3, 0.3], [0.1, 0.1, 0.1], [0.2, 0.2, 0.2], [0.0, 0.0]]
    found = over_rounds(groups)[0]
    assert found.low == found.point == found.high


@given(st.lists(st.floats(1e-9, 1e6), min_size=1, max_size=40))
def test_the_interval_of_a_median_contains_it_and_lies_within_the_samples(samples: list[float]):
    found = median_interval(samples)
    if found.kind is IntervalKind.WITHIN:
        assert min(samples) <= found.low <= found.point <= found.high <= max(samples)


@given(st.lists(st.lists(st.floats(-3, 3), min_size=1, max_size=4), min_size=1, max_size=8))
def test_any_rounds_give_ordered_finite_intervals(groups: list[list[float]]):
    found = over_rounds(groups)
    if found is None:
        assert all(len(group) < 2 for group in groups)
        return
    for got in found:
        assert got.df >= 1
        assert 0 <= got.low <= got.point <= got.high


# from the printed tables of Student's t, two-sided
@pytest.mark.parametrize(
    ("level", "df", "expected"),
    [
        (0.95, 1, 12.7062),
        (0.99, 5, 4.03214),
        (0.90, 10, 1.81246),
        (0.95, 1e9, 1.95996),
    ],
)
def test_quantiles_are_those_of_the_printed_tables(level: float, df: float, expected: float):
    assert student_quantile(level, df) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("df", [1, 2, 3, 7.5, 100])
@pytest.mark.parametrize("point", [0.0, 1.0, 1e6, 1e9, 1e11])
def test_a_p_value_is_a_probability_however_large_the_effect(point: float, df: float):
    assert 0 <= p_value(point, 1.0, df) <= 1


@pytest.mark.parametrize("unknown", [(math.nan, 0.0, 3), (0.1, math.nan, 3), (0.1, 0.1, math.nan)])
def test_what_is_unknown_has_no_p_value(unknown: tuple[float, float, float]):
    assert math.isnan(p_value(*unknown))
