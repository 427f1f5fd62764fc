"""Verdicts on changes: confidence intervals against a threshold, over a family of cases.

A change is called only if it is larger than the threshold and passes the rule of Benjamini and
Hochberg (1995) over all cases judged together, so that a long list raises no more false alarms.
"""

from collections.abc import Sequence
from enum import StrEnum

import numpy as np

from attnbench.records import metrics

# placement of code and pages alone causes smaller changes of wall time
THRESHOLD = 0.03
# false discovery rate: the expected share of false calls among all calls
FALSE_CALLS = 0.05


class Verdict(StrEnum):
    """The second compared with the first."""

    SLOWER = "slower"  # or larger
    FASTER = "faster"  # or smaller
    SAME = "same"
    UNSURE = "unsure"
    DIFFERENT = "different"  # outputs
    MISSING = "missing"  # one of the two was not measured


def verdict_on(
    point: float, low: float, high: float, called: bool, threshold: float = THRESHOLD
) -> Verdict:
    """The verdict on one log ratio.

    point: of the later over the earlier; NaN where one was not measured.
    low, high: the ends of its interval; NaN where it has none.
    called: whether it passed the rule of its family of comparisons (`discoveries`).
    threshold: the change that counts, as a share.
    """
    if np.isnan(point):
        return Verdict.MISSING
    limit = np.log1p(threshold)
    if called and abs(point) > limit:
        return Verdict.SLOWER if point > 0 else Verdict.FASTER
    return Verdict.SAME if -limit <= low and high <= limit else Verdict.UNSURE


def count_verdict(first: float | None, second: float | None, metric: metrics.Metric) -> Verdict:
    """The verdict on a count; `slower` means worse, in the direction that the metric defines."""
    if first is None or second is None:
        return Verdict.MISSING
    if abs(second - first) <= (metric.tolerance or 0.0) * abs(first):
        return Verdict.SAME
    if metric.better is metrics.Better.NEITHER:
        return Verdict.UNSURE
    is_worse = (second > first) == (metric.better is metrics.Better.LOWER)
    return Verdict.SLOWER if is_worse else Verdict.FASTER


def discoveries(p_values: Sequence[float]) -> np.ndarray:
    """Which p-values pass the rule of Benjamini and Hochberg; NaN never does."""
    p = np.array(p_values, float)
    tested = np.sort(p[~np.isnan(p)])
    passed = tested <= FALSE_CALLS * np.arange(1, len(tested) + 1) / max(len(tested), 1)
    if not passed.any():
        return np.zeros(len(p), bool)
    return np.asarray(np.nan_to_num(p, nan=np.inf) <= tested[np.flatnonzero(passed)[-1]])
