"""Verdicts need size and certainty, over a family of cases."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from attnbench.analysis.statistics.verdict import Verdict, discoveries, verdict_on


def test_a_verdict_needs_size_and_certainty():
    assert verdict_on(np.nan, np.nan, np.nan, False) is Verdict.MISSING
    assert verdict_on(0.2, 0.1, 0.3, True) is Verdict.SLOWER
    assert verdict_on(-0.2, -0.3, -0.1, True) is Verdict.FASTER
    assert verdict_on(0.2, -0.1, 0.5, False) is Verdict.UNSURE
    assert verdict_on(0.01, 0.005, 0.015, True) is Verdict.SAME
    assert verdict_on(0.2, np.nan, np.nan, False) is Verdict.UNSURE


def test_discoveries_follow_the_rule():
    # the example of Benjamini and Hochberg (1995), section 3.2: the four smallest of fifteen
    p = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344]
    p += [0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.000]
    assert discoveries(p).tolist() == [True] * 4 + [False] * 11


@given(st.lists(st.floats(0, 1) | st.just(float("nan")), max_size=30))
def test_discoveries_are_the_smallest_p_values(p_values: list[float]):
    called = discoveries(p_values)
    p = np.array(p_values, float)
    if called.any():
        assert p[called].max() <= np.nanmin(np.where(called, np.inf, p), initial=np.inf)
