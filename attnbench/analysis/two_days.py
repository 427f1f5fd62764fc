"""Times of one machine on two days: a hint, never a failure."""

import math
from collections.abc import Sequence

import numpy as np

from attnbench.analysis.estimate import student_quantile
from attnbench.analysis.finding import TIME, Finding
from attnbench.analysis.verdict import Verdict

LEVEL = 0.99
# medians of one machine on two days differ by more than this with nothing changed
THRESHOLD = 0.10


def two_days(mechanism: str, case: str, before: Sequence[float], now: Sequence[float]) -> Finding:
    """Seconds of each process then and now; what moved is unsure, for a paired check to settle."""
    a, b = np.log(before), np.log(now)
    point, half = float(b.mean() - a.mean()), math.inf
    few = min(len(a), len(b))
    if few > 1:
        error = math.hypot(a.std(ddof=1) / len(a) ** 0.5, b.std(ddof=1) / len(b) ** 0.5)
        half = student_quantile(LEVEL, few - 1) * error
    moved = abs(point) > max(half, math.log1p(THRESHOLD))
    return Finding(
        mechanism=mechanism,
        case=case,
        metric=TIME,
        base=math.exp(a.mean()),
        head=math.exp(b.mean()),
        ratio=math.exp(point),
        low=math.exp(point - half) if half < math.inf else None,
        high=math.exp(point + half) if half < math.inf else None,
        verdict=Verdict.UNSURE if moved else Verdict.SAME,
        reason="stored on another day; --base measures both sides at once" if moved else "",
    )
