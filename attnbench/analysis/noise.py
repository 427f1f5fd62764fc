"""What the machine did while a sweep ran, and how much wider it made the intervals.

Each run's log median is taken relative to the mean of its case, so that only what changed between
visits to the same case counts. Drift is a line fitted to these over the place in the sweep.

How much wider variation between processes makes the intervals is the ratio of two standard
deviations of a run's log median: as the rounds of a case differ, and as the samples of one process
alone suggest. 1 means that a fresh process changes nothing; where samples of a process depend on
each other it is too large.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from attnbench.analysis.estimate import Estimate, Kind, from_log
from attnbench.analysis.summary import timed_medians, timed_runs
from attnbench.records import Sweep


@dataclass(frozen=True, kw_only=True)
class Drift:
    """How times changed over a sweep."""

    change: Estimate  # the factor by which they grew from the first run to the last
    widening: float | None  # how many times wider it makes the intervals, at least 1


def drift(sweep: Sweep) -> Drift | None:
    """The slope of log times over the sweep; None without repetition."""
    visits = list(enumerate(timed_medians(sweep.runs)))
    if len(visits) < 2:
        return None
    places: dict[str, list[float]] = {}
    logs: dict[str, list[float]] = {}
    for place, (case, median) in visits:
        places.setdefault(case, []).append(place / (len(visits) - 1))
        logs.setdefault(case, []).append(math.log(median))
    x, y = _centred(places), _centred(logs)
    df, power = len(visits) - len(places) - 1, float(x @ x)
    if df < 1 or not power:
        return None
    slope = float(x @ y) / power
    whole, rest = float(y @ y), float(np.sum((y - slope * x) ** 2))
    return Drift(
        change=from_log(slope, math.sqrt(rest / df / power), df, Kind.ROUNDS),
        widening=max(1.0, math.sqrt(whole / (df + 1) / (rest / df))) if rest else None,
    )


def widening(sweep: Sweep) -> float | None:
    """How many times wider variation between processes makes the intervals; None if unknown."""
    logs: dict[str, list[float]] = {}
    squares, dfs, shares = 0.0, 0, []
    for run in timed_runs(sweep.runs):
        seconds = np.log([sample.seconds for sample in run.samples])
        logs.setdefault(run.case, []).append(float(np.median(seconds)))
        squares += float(np.sum((seconds - seconds.mean()) ** 2))
        dfs += len(seconds) - 1
        shares.append(median_share(len(seconds)))
    rounds = sum(len(group) - 1 for group in logs.values())
    if not rounds or not dfs or not squares:
        return None
    between = float(np.sum(_centred(logs) ** 2)) / rounds
    return math.sqrt(between / (squares / dfs * float(np.mean(shares))))


def median_share(samples: int) -> float:
    """The variance of the median of a number of normal samples, as a share of that of one.

    π / 2n for many; the number added to n brings few within 3 % of what simulation gives. An even
    number has the mean of two for its median, which varies less.
    """
    return math.pi / (2 * samples + (2.4 if samples % 2 == 0 else math.pi - 2))


def throttled(sweep: Sweep) -> dict[str, int]:
    """How many timed runs ended while the GPU was slowed down, by the reasons it gave."""
    return dict(
        Counter(note for run in timed_runs(sweep.runs) if (note := run.notes.get("throttle")))
    )


def loads(sweep: Sweep) -> list[float]:
    """The load average as each timed run began, where the system gives it."""
    found = (run.values.get("load_before") for run in timed_runs(sweep.runs))
    return [load for load in found if load is not None]


def _centred(groups: Mapping[str, list[float]]) -> np.ndarray:
    """All values, each less the mean of its group."""
    return np.concatenate([np.array(group) - np.mean(group) for group in groups.values()])
