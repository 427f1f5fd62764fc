"""How far drift of the machine affects the times of a sweep, and wall time beside CPU time.

The log median of each run is taken relative to the mean of its case, so that only changes between
runs of the same case count. Drift is a line fitted to these over the position in the sweep.
"""

import math
from collections.abc import Iterable, Sequence
from statistics import median

import numpy as np

from attnbench.analysis.summary import timed_medians, timed_runs
from attnbench.records import Clock, Sweep
from attnbench.statistics.estimate import Estimate, from_log


def drift(sweep: Sweep) -> Estimate | None:
    """The factor by which times grew from the first run to the last; None without repetition."""
    medians = timed_medians(sweep.runs)
    cases = [case for case, _ in medians]
    df = len(cases) - len(set(cases)) - 1
    if df < 1:
        return None
    x = _centred(cases, np.linspace(0, 1, len(cases)))
    y = _centred(cases, [math.log(seconds) for _, seconds in medians])
    power = float(x @ x)
    if not power:
        return None
    slope = float(x @ y) / power
    rest = float(np.sum((y - slope * x) ** 2))
    return from_log(slope, math.sqrt(rest / df / power), df)


def wall_factor(sweep: Sweep) -> float | None:
    """The median ratio of wall time to CPU time; None for another clock."""
    samples = (s for run in timed_runs(sweep.runs) for s in run.samples)
    factors = [s.wall_s / s.cpu_s for s in samples if s.clock == Clock.CPU and s.cpu_s]
    return median(factors) if factors else None


def _centred(cases: Sequence[str], values: Iterable[float]) -> np.ndarray:
    """The values, each less the mean of its case, case by case."""
    groups: dict[str, list[float]] = {}
    for case, value in zip(cases, values, strict=True):
        groups.setdefault(case, []).append(value)
    return np.concatenate([np.array(group) - np.mean(group, 0) for group in groups.values()])
