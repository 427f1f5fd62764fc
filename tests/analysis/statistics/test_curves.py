"""The algebra of log curves compared with its definition."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.analysis.statistics.curves import LogCurve, cost_curve
from attnbench.analysis.statistics.estimate import half_widths, student_quantile
from attnbench.records.metrics import TABLE

COSTS = st.floats(1e-9, 1e9)
ERRORS = st.floats(0, 2)
POINTS = st.dictionaries(st.integers(1, 1 << 20), st.tuples(COSTS, ERRORS), min_size=2, max_size=12)


def curve(points: dict[int, tuple[float, float]], df: float = 7.0) -> LogCurve:
    costs, errors = zip(*points.values(), strict=True)
    return LogCurve.of(list(points), costs, errors, df)


def test_half_widths_follow_students_t_and_unknown_errors_stay_unknown():
    found = half_widths([0.0, 0.1, 0.1, math.nan, 0.1], [math.nan, 2, math.inf, 5, math.nan])
    assert found[0] == 0
    assert found[1] == pytest.approx(0.1 * 4.30265, rel=1e-4)
    assert found[2] == pytest.approx(0.1 * 1.95996, rel=1e-4)
    assert np.isnan(found[3:]).all()


@given(POINTS)
def test_a_curve_is_ordered_by_length_and_keeps_its_costs(points):
    found = curve(points)
    assert list(found.lengths) == sorted(points)
    assert np.exp(found.logs) == pytest.approx([points[int(n)][0] for n in found.lengths])


def test_costs_that_are_not_positive_are_left_out():
    found = LogCurve.of([4, 3, 2, 1], [1.0, math.nan, 0.0, 2.0], [0.1, 0.2, 0.3, 0.4], 3)
    assert list(found.lengths) == [1, 4]
    assert list(found.errors) == [0.4, 0.1]
    assert len(LogCurve.of([1], [0.0])) == 0


def curve_of(metric):
    """The curve of a metric in a summary that knows the errors of every cost."""
    columns = {"seq_len": [16, 32], "batch": [4, 2]}
    for row in (row for row in TABLE.values() if row.interval):
        columns |= dict(zip(row.estimate[3:], ([0.1] * 2, [3.0] * 2), strict=True))
    return cost_curve(pd.DataFrame(columns | {metric: [8.0, 6.0]}), metric)


@pytest.mark.parametrize(
    ("metrics", "error", "df"),
    [
        ([key for key, row in TABLE.items() if row.interval], 0.1, 3.0),
        (("compile_s", "setup_s", "power_w"), math.nan, math.nan),
        (("allocated_peak_bytes", "state_bytes", "flops", "derived"), 0.0, math.inf),
    ],
)
def test_a_cost_has_its_own_errors(metrics, error, df):
    for metric in metrics:
        found = curve_of(metric)
        assert np.exp(found.logs) == pytest.approx([2.0, 3.0])
        np.testing.assert_array_equal(found.errors, [error, error])
        np.testing.assert_array_equal(found.df, [df, df])


@given(POINTS, POINTS)
def test_a_difference_is_taken_at_common_lengths_and_errors_add_in_squares(one, other):
    found = curve(one, 3).minus(curve(other, 9))
    assert list(found.lengths) == sorted(one.keys() & other.keys())
    for n, log, error, df in zip(found.lengths, found.logs, found.errors, found.df, strict=True):
        (a, error_a), (b, error_b) = one[int(n)], other[int(n)]
        assert log == pytest.approx(math.log(a / b), abs=1e-9)
        assert error**2 == pytest.approx(error_a**2 + error_b**2)
        assert df == 3


@given(st.floats(-3, 3), st.lists(st.integers(1, 1 << 20), min_size=2, max_size=9, unique=True))
def test_the_slope_of_a_power_law_is_its_exponent(power: float, lengths: list[int]):
    costs = [3.0 * float(n) ** power for n in lengths]
    value, low, high = LogCurve.of(lengths, costs).coefficient(1)
    assert value == pytest.approx(power, abs=1e-6)
    assert low == value == high


def test_the_error_of_a_slope_between_two_lengths_is_that_of_both_over_their_distance():
    found = LogCurve.of([10, 100], [1.0, 10.0], [0.3, 0.4], [4, 8])
    value, low, high = found.coefficient(1)
    half = student_quantile(0.95, 4) * 0.5 / math.log(10)
    assert (value, high - value, value - low) == pytest.approx((1, half, half))
