"""What a change amounts to: its interval against a threshold, over a family of cases.

A change is called only if it is larger than the threshold and passes Benjamini and Hochberg's rule
(1995) over all cases judged together, so that a long list does not raise alarms by its length.
"""

from collections.abc import Sequence
from enum import StrEnum

import numpy as np

from attnbench.metrics import Better, Metric

# smaller changes of wall time are within what placement of code and pages does
THRESHOLD = 0.03
# the share of false calls among all calls
FALSE_CALLS = 0.05


class Verdict(StrEnum):
    """The second against the first."""

    SLOWER = "slower"  # or larger
    FASTER = "faster"  # or smaller
    SAME = "same"
    UNSURE = "unsure"
    MISSING = "missing"  # one of the two was not measured


def verdicts(
    points: Sequence[float],
    lows: Sequence[float],
    highs: Sequence[float],
    p_values: Sequence[float],
    threshold: float = THRESHOLD,
) -> list[Verdict]:
    """The verdict on each log ratio with its interval; NaN is missing, no interval is unsure."""
    real = discoveries(p_values)
    return [
        judge(point, low, high, bool(called), threshold)
        for point, low, high, called in zip(points, lows, highs, real, strict=True)
    ]


def judge(
    point: float, low: float, high: float, called: bool, threshold: float = THRESHOLD
) -> Verdict:
    """The verdict on one log ratio; `called` says whether it passed the family's rule."""
    if np.isnan(point):
        return Verdict.MISSING
    limit = np.log1p(threshold)
    if called and abs(point) > limit:
        return Verdict.SLOWER if point > 0 else Verdict.FASTER
    return Verdict.SAME if -limit <= low and high <= limit else Verdict.UNSURE


def of_count(first: float | None, second: float | None, metric: Metric) -> Verdict:
    """The verdict on a counted number; `slower` is worse, whichever way that is."""
    if first is None or second is None:
        return Verdict.MISSING
    if abs(second - first) <= (metric.tolerance or 0.0) * abs(first):
        return Verdict.SAME
    match metric.better:
        case Better.LOWER:
            return Verdict.SLOWER if second > first else Verdict.FASTER
        case Better.HIGHER:
            return Verdict.SLOWER if second < first else Verdict.FASTER
        case Better.NEITHER:
            return Verdict.UNSURE


def discoveries(p_values: Sequence[float], share: float = FALSE_CALLS) -> np.ndarray:
    """Which p-values Benjamini and Hochberg's rule takes for real; NaN never."""
    p = np.array(p_values, float)
    tested = np.sort(p[~np.isnan(p)])
    passed = tested <= share * np.arange(1, len(tested) + 1) / max(len(tested), 1)
    if not passed.any():
        return np.zeros(len(p), bool)
    return np.asarray(np.nan_to_num(p, nan=np.inf) <= tested[np.flatnonzero(passed)[-1]])
