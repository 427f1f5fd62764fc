"""Stored times are a hint: what moved is unsure, and nothing fails."""

from statistics import geometric_mean

import pytest

from attnbench.gate.rule import stored_time_finding


@pytest.mark.parametrize(
    ("before", "now", "verdict"),
    [
        ((1.0, 1.01, 0.99), (1.05, 1.06, 1.04), "same"),
        ((1.0, 1.01, 0.99), (1.5, 1.51, 1.49), "unsure"),
        ((1.0, 1.01, 0.99), (0.5, 0.51, 0.49), "unsure"),
        ((1.0, 2.0, 0.5), (1.5, 3.0, 0.8), "same"),
        ((1.0,), (9.0, 9.0, 9.0), "same"),
    ],
)
def test_a_stored_time_never_fails(before, now, verdict):
    found = stored_time_finding("m", "c", before, now)
    assert (found.verdict, found.fails) == (verdict, False)
    assert found.base == pytest.approx(geometric_mean(before))
    assert found.head == pytest.approx(geometric_mean(now))
    assert found.ratio == pytest.approx(geometric_mean(now) / geometric_mean(before))
