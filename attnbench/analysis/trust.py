"""How far drift and variation between processes and nodes affect the times of a sweep.

The log median of each run is taken relative to the mean of its case, so that only changes between
runs of the same case count. Drift is a line fitted to these over the position in the sweep.

The widening by variation between processes is the ratio of two standard deviations of a run's log
median: that between the rounds of a case, and that expected from the samples of one process. 1
means that processes do not differ; dependent samples within a process make it too large.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from attnbench.analysis.summary import timed_medians, timed_runs
from attnbench.records import Clock, Sweep
from attnbench.statistics.estimate import Estimate, from_log


@dataclass(frozen=True, kw_only=True)
class Drift:
    """The trend of times over a sweep."""

    change: Estimate  # the factor by which times grew from the first run to the last
    widening: float | None  # the factor by which drift widens the intervals, at least 1


def drift(sweep: Sweep) -> Drift | None:
    """The slope of log times over the sweep; None without repetition."""
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
    whole, rest = float(y @ y), float(np.sum((y - slope * x) ** 2))
    return Drift(
        change=from_log(slope, math.sqrt(rest / df / power), df),
        widening=max(1.0, math.sqrt(whole / (df + 1) / (rest / df))) if rest else None,
    )


def widening(sweep: Sweep) -> float | None:
    """The factor by which variation between processes widens the intervals; None if unknown."""
    runs = timed_runs(sweep.runs)
    logs, squares, dfs, shares = list[float](), 0.0, 0, list[float]()
    for run in runs:
        seconds = np.log([sample.seconds for sample in run.samples])
        logs.append(float(np.median(seconds)))
        squares += float(np.sum((seconds - seconds.mean()) ** 2))
        dfs += len(seconds) - 1
        shares.append(median_share(len(seconds)))
    cases = [run.case for run in runs]
    rounds = len(cases) - len(set(cases))
    if not rounds or not dfs or not squares:
        return None
    between = float(np.sum(_centred(cases, logs) ** 2)) / rounds
    return math.sqrt(between / (squares / dfs * float(np.mean(shares))))


def waiting_share(sweep: Sweep) -> float | None:
    """The share of the samples' wall time in which their processes waited for a core."""
    samples = [s for run in timed_runs(sweep.runs) for s in run.samples if s.waited_s is not None]
    wall_s = sum(sample.wall_s for sample in samples)
    # other threads of the process wait too, while it computes
    waited_s = (min(s.waited_s or 0.0, max(0.0, s.wall_s - s.cpu_s)) for s in samples)
    return sum(waited_s) / wall_s if wall_s else None


def wall_factor(sweep: Sweep) -> float | None:
    """The median ratio of wall time to CPU time; None for another clock."""
    samples = (s for run in timed_runs(sweep.runs) for s in run.samples)
    factors = [s.wall_s / s.cpu_s for s in samples if s.clock == Clock.CPU and s.cpu_s]
    return median(factors) if factors else None


def node_share(sweep: Sweep) -> float | None:
    """The share of the variance between processes that lies between nodes; None if unknown.

    A node is a host with its device. The model of a run's log median is case + node + process, and
    the variance of the nodes is estimated from the squares that they explain beyond the cases
    (Henderson 1953, "Estimation of variance and covariance components", method 3).
    """
    runs = timed_runs(sweep.runs)
    nodes = dict.fromkeys(run.origin.node for run in runs)
    if len(nodes) < 2:
        return None
    cases = [run.case for run in runs]
    y = _centred(cases, [math.log(seconds) for _, seconds in timed_medians(sweep.runs)])
    z = _centred(cases, [[float(run.origin.node == node) for node in nodes] for run in runs])
    effects, _, rank, _ = np.linalg.lstsq(z, y, rcond=None)
    explained = float(y @ (z @ effects))
    df = len(y) - len(set(cases)) - int(rank)
    if df < 1 or not rank:
        return None
    rest = (float(y @ y) - explained) / df
    between = max(0.0, (explained - rank * rest) / float(np.sum(z**2)))
    return between / (between + rest) if between + rest > 0 else None


def median_share(samples: int) -> float:
    """The variance of the median of normal samples, as a share of the variance of one.

    π / 2n for many; the added constants give the simulated value within 3 % for few. The median of
    an even number of samples is a mean of two, which varies less.
    """
    return math.pi / (2 * samples + (2.4 if samples % 2 == 0 else math.pi - 2))


def _centred(cases: Sequence[str], values: Iterable[Any]) -> np.ndarray:
    """The values, each less the mean of its case, case by case."""
    groups: dict[str, list[Any]] = {}
    for case, value in zip(cases, values, strict=True):
        groups.setdefault(case, []).append(value)
    return np.concatenate([np.array(group) - np.mean(group, 0) for group in groups.values()])
