"""Reasons to trust the numbers of a sweep less, and how much disturbances widen its intervals.

The log median of each run is taken relative to the mean of its case, so that only changes between
runs of the same case count. Drift is a line fitted to these over the position in the sweep.

The widening by variation between processes is the ratio of two standard deviations of a run's log
median: that between the rounds of a case, and that which the samples of one process suggest. 1
means that processes do not differ; dependent samples within a process make it too large.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attnbench.analysis import roofline
from attnbench.analysis.summary import other_types, shows_launches, timed_medians, timed_runs
from attnbench.records import AWAY, Clock, Sweep
from attnbench.statistics.estimate import Estimate, IntervalKind, from_log

if TYPE_CHECKING:
    from attnbench.analysis.report import Analysis

# limits above which a warning is given
DRIFT = 0.03  # of times over a sweep, with its whole confidence interval
BUSY = 0.5  # load of other programs, as a share of the cores
LEAK = 1 << 20  # bytes that each iteration leaves allocated
SHOWN = 8  # missing shards; there may be millions
LAPS = 0.01  # of all laps that were disturbed


class WarningKind(StrEnum):
    """Reasons to trust the numbers of a sweep less; the comments name the details of each."""

    INCOMPLETE = "shards are missing"  # shards, of, missing: the first of them
    JOURNAL = "part of the journal was set aside"  # text
    UNFINISHED = "the sweep did not finish"
    MIXED = "sessions ran on different machines or versions"
    MEDDLED = "a mechanism changed the state of its process"  # mechanism, change
    OTHER_TYPE = "a mechanism computed in another number type"  # mechanism, types, dtype
    DEPARTS = "a form of another package computes another function"  # series, package, departs
    LEAKS = "a mechanism keeps memory with each iteration"  # mechanism, bytes
    AWAY = "a mechanism computes where CPU time does not see it, or sleeps"  # series, share
    TOO_FAST = "a time is shorter than reading the input takes"  # series
    ROOF_RAISED = "a case did more than the measured peaks"
    BUSY = "the machine was busy at the start"  # load, cores
    LOADED = "runs began under the load of other programs"  # runs, of, limit, load, threads
    THROTTLED = "the GPU was slowed down"  # reasons: the number of runs of each
    LOW_CLOCK = "the clock of the GPU was low"  # runs, of
    LAUNCH_BOUND = "the host was slower than the GPU"  # cases, of, visible
    HIDDEN = "NVML did not show the memory of processes"  # reason
    DISTURBED = "laps were disturbed"  # laps: how many by each `Disturbance`; of
    DRIFTED = "times drifted over the sweep"  # drift
    WIDENED = "variation between processes widened the intervals"  # factor
    ONE_ROUND = "there was one round only"


class SweepWarning(NamedTuple):
    """A warning as data, with the details that `WarningKind` names."""

    kind: WarningKind
    details: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Drift:
    """The trend of times over a sweep."""

    change: Estimate  # the factor by which times grew from the first run to the last
    widening: float | None  # the factor by which drift widens the intervals, at least 1


Warnings = Iterator[tuple[WarningKind, dict[str, Any]]]


def warnings(analysis: "Analysis") -> Warnings:
    """The warnings of an analysis: the kind of each with its details."""
    sweep, cases = analysis.sweep, analysis.cases
    if missing := (*islice(sweep.missing, SHOWN),):
        held = sweep.shards
        details = {"shards": len(held), "of": held[0].of, "missing": missing}
        yield WarningKind.INCOMPLETE, details
    for text in sweep.warnings:
        yield WarningKind.JOURNAL, {"text": text}
    if not sweep.finished:
        yield WarningKind.UNFINISHED, {}
    if len({session.fingerprint for session in sweep.sessions}) > 1:
        yield WarningKind.MIXED, {}
    yield from _meddled(sweep)
    for mechanism, types in other_types(cases, sweep.request.dtype).items():
        details = {"mechanism": mechanism, "types": types, "dtype": sweep.request.dtype}
        yield WarningKind.OTHER_TYPE, details
    yield from _departing(sweep)
    yield from _away(sweep)
    for series in roofline.too_fast(sweep, cases):
        yield WarningKind.TOO_FAST, {"series": series}
    if analysis.roof is not None and analysis.roof.raised:
        yield WarningKind.ROOF_RAISED, {}
    yield from _of_a_gpu(analysis)
    disturbed = [*_disturbed(analysis)]
    yield from disturbed
    if disturbed and (analysis.widening or 0.0) > 1:
        yield WarningKind.WIDENED, {"factor": analysis.widening}
    kinds = set(cases.loc[cases["time_s"].notna(), "interval_kind"])
    if kinds and IntervalKind.ROUNDS not in kinds:
        yield WarningKind.ONE_ROUND, {}


def _meddled(sweep: Sweep) -> Warnings:
    """Each change that a mechanism made to its process, once."""
    names = {planned.case.key: planned.case.mechanism for planned in sweep.plan}
    changes: dict[tuple[str, str], None] = {}
    kept: dict[str, float] = {}
    for run in sweep.runs:
        name = names.get(run.case, run.case)
        if state := run.notes.get("changed"):
            changes[name, f"changed {state}"] = None
        if state := run.notes.get("autocast"):
            changes[name, f"ran under autocast ({state})"] = None
        for note in ("odd", "recompiled", "processes", "later"):
            if change := run.notes.get(note):
                changes[name, change] = None
        kept[name] = max(kept.get(name, 0.0), run.values.get("kept_bytes", 0.0))
    for name, change in changes:
        yield WarningKind.MEDDLED, {"mechanism": name, "change": change}
    for name, kept_bytes in kept.items():
        if kept_bytes > LEAK:
            yield WarningKind.LEAKS, {"mechanism": name, "bytes": kept_bytes}


def _departing(sweep: Sweep) -> Warnings:
    """Each form of another package that does not compute the mechanism's equations, once."""
    series = {planned.case.key: planned.case.series for planned in sweep.plan}
    departing = {
        (series.get(run.case, run.case), run.notes.get("package", ""), run.notes["departs"]): None
        for run in sweep.runs
        if "departs" in run.notes
    }
    for name, package, departs in departing:
        yield WarningKind.DEPARTS, {"series": name, "package": package, "departs": departs}


def _away(sweep: Sweep) -> Warnings:
    """Each series that is away from its process in most laps of a case, once, with the share."""
    series = {planned.case.key: planned.case.series for planned in sweep.plan}
    shares: dict[str, list[float]] = {}
    for run in timed_runs(sweep.runs):
        timed = [s for s in run.samples if s.clock == Clock.CPU]
        shares.setdefault(run.case, []).extend(s.away_s / s.wall_s for s in timed)
    most: dict[str, float] = {}
    for case, own in shares.items():
        if own and (share := median(own)) > AWAY:
            name = series.get(case, case)
            most[name] = max(share, most.get(name, 0.0))
    for name, share in most.items():
        yield WarningKind.AWAY, {"series": name, "share": share}


def _of_a_gpu(analysis: "Analysis") -> Warnings:
    """What times and memory of a GPU do not include."""
    runs, cases = analysis.sweep.runs, analysis.cases
    if len(bound := cases.loc[cases["launch_bound"], "key"]):
        visible = len({run.case for run in runs if shows_launches(run)})
        measured = int(cases["time_s"].notna().sum())
        yield WarningKind.LAUNCH_BOUND, {"cases": len(bound), "of": measured, "visible": visible}
    for reason in dict.fromkeys(run.notes["nvml"] for run in runs if "nvml" in run.notes):
        yield WarningKind.HIDDEN, {"reason": reason}


def _disturbed(analysis: "Analysis") -> Warnings:
    """Disturbances of the machine: before the first run, during runs, and over the sweep.

    Load alone does not disturb CPU time on one core; what it does to caches and clock rates is seen
    beside each lap.
    """
    sweep = analysis.sweep
    if sweep.request.settings.clock is not Clock.CPU:
        yield from _loaded(sweep)
    timed = timed_runs(sweep.runs)
    if reasons := Counter(filter(None, (run.notes.get("throttle") for run in timed))):
        yield WarningKind.THROTTLED, {"reasons": dict(reasons)}
    if low := sum("clock" in run.notes for run in timed):
        yield WarningKind.LOW_CLOCK, {"runs": low, "of": len(timed)}
    laps = [sample.disturbed for run in timed for sample in run.samples]
    if (disturbed := Counter(filter(None, laps))).total() > LAPS * len(laps):
        yield WarningKind.DISTURBED, {"laps": disturbed, "of": len(laps)}
    drift = analysis.drift
    if drift and (drift.change.low >= 1 + DRIFT or drift.change.high <= 1 - DRIFT):
        yield WarningKind.DRIFTED, {"drift": drift}


def _loaded(sweep: Sweep) -> Warnings:
    """The load of other programs, at the start and when runs began."""
    at_start = [session.load for session in sweep.sessions if session.load is not None]
    cores = max((session.cores for session in sweep.sessions), default=1)
    threads = max((session.threads for session in sweep.sessions), default=1)
    if at_start and max(at_start) > BUSY * cores:
        yield WarningKind.BUSY, {"load": max(at_start), "cores": cores}
    # the sweep itself loads the machine with its threads
    timed, limit = timed_runs(sweep.runs), threads + BUSY * cores
    loads = [run.values["load_before"] for run in timed if "load_before" in run.values]
    above = [load for load in loads if load > limit]
    if above:
        details = {"runs": len(above), "of": len(loads), "load": max(above)}
        yield WarningKind.LOADED, {**details, "limit": limit, "threads": threads}


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


def waiting(sweep: Sweep) -> float | None:
    """The share of the samples' wall time in which their processes waited for a core."""
    samples = [s for run in timed_runs(sweep.runs) for s in run.samples if s.waited_s is not None]
    wall_s = sum(sample.wall_s for sample in samples)
    return sum(sample.waited_s or 0.0 for sample in samples) / wall_s if wall_s else None


def wall_factor(sweep: Sweep) -> float | None:
    """How many times as long as CPU time wall time is, in the median; None of another clock."""
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
