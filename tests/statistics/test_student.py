import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.statistics.estimate import MANY, p_value, student_quantile, student_within


# from the printed tables of Student's t, two-sided
@pytest.mark.parametrize(
    ("level", "df", "expected"),
    [
        (0.95, 1, 12.7062),
        (0.95, 2, 4.30265),
        (0.95, 5, 2.57058),
        (0.95, 30, 2.04227),
        (0.95, 120, 1.97993),
        (0.99, 5, 4.03214),
        (0.90, 10, 1.81246),
        (0.95, 1e9, 1.95996),
    ],
)
def test_quantiles_are_those_of_the_printed_tables(level: float, df: float, expected: float):
    assert student_quantile(level, df) == pytest.approx(expected, rel=1e-5)


@given(st.floats(0.01, 0.999), st.floats(1, 1e7))
def test_the_quantile_inverts_the_probability(level: float, df: float):
    assert student_within(student_quantile(level, df), df) == pytest.approx(level, abs=1e-9)


def test_the_change_to_the_normal_distribution_is_negligible():
    below = student_quantile(0.95, MANY)
    assert below == pytest.approx(student_quantile(0.95, MANY * 1.01), rel=2e-5)


@pytest.mark.parametrize("df", [1, 2, 3, 7.5, 100])
@pytest.mark.parametrize("point", [0.0, 1.0, 1e6, 1e9, 1e11])
def test_a_p_value_is_a_probability_however_large_the_effect(point: float, df: float):
    assert 0 <= p_value(point, 1.0, df) <= 1


@pytest.mark.parametrize("unknown", [(math.nan, 0.0, 3), (0.1, math.nan, 3), (0.1, 0.1, math.nan)])
def test_what_is_unknown_has_no_p_value(unknown: tuple[float, float, float]):
    assert math.isnan(p_value(*unknown))
