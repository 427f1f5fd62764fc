"""Everything that a report states about a sweep, computed once; `render` only writes it."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import starmap
from typing import Any, NamedTuple

import numpy as np

from attnbench.analysis import noise, roofline, scaling
from attnbench.analysis.answers import Answers, answers
from attnbench.analysis.estimate import IntervalKind
from attnbench.analysis.ratios import Ratios
from attnbench.analysis.scaling import crossovers, speedups
from attnbench.analysis.standings import Standings
from attnbench.analysis.summary import (
    Frame,
    kernels,
    other_types,
    precision,
    prediction_errors,
    shows_launches,
    summary,
    timed_runs,
)
from attnbench.analysis.variants import variant
from attnbench.errors import UnknownMechanism
from attnbench.records import Sweep

SOFTMAX = "transformer"  # the default mechanism to compare with

# limits above which a warning is given
DRIFT = 0.03  # of times over a sweep, with its whole confidence interval
BUSY = 0.5  # load of other programs, as a share of the cores
LEAK = 1 << 20  # bytes that each iteration leaves allocated


class WarningKind(StrEnum):
    """Reasons to trust the numbers of a sweep less; the comments name the details of each."""

    JOURNAL = "part of the journal was set aside"  # text
    UNFINISHED = "the sweep did not finish"
    MIXED = "sessions ran on different machines or versions"
    MEDDLED = "a mechanism changed the state of its process"  # mechanism, change
    OTHER_TYPE = "a mechanism computed in another number type"  # mechanism, types, dtype
    DEPARTS = "a form of another package computes another function"  # series, package, departs
    LEAKS = "a mechanism keeps memory with each iteration"  # mechanism, bytes
    TOO_FAST = "a time is shorter than reading the input takes"  # series
    ROOF_RAISED = "a case did more than the measured peaks"
    BUSY = "the machine was busy at the start"  # load, cores
    LOADED = "runs began under the load of other programs"  # runs, of, limit, load, threads
    THROTTLED = "the GPU was slowed down"  # reasons: the number of runs of each
    LOW_CLOCK = "the clock of the GPU was low"  # runs, of
    LAUNCH_BOUND = "the host was slower than the GPU"  # cases, of, visible
    HIDDEN = "NVML did not show the memory of processes"  # reason
    DRIFTED = "times drifted over the sweep"  # drift
    WIDENED = "variation between processes widened the intervals"  # factor
    ONE_ROUND = "there was one round only"


class SweepWarning(NamedTuple):
    """A warning as data, with the details that `WarningKind` names."""

    kind: WarningKind
    details: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """A sweep and all that follows from it, computed on first use.

    The function that makes a frame documents its columns.
    """

    sweep: Sweep
    cases: Frame  # of `summary`
    against: str | None = None  # the series chosen to compare with

    @property
    def modes(self) -> list[str]:
        """The modes of the cases, in the order of the plan."""
        return list(dict.fromkeys(self.cases["mode"]))

    @property
    def baseline(self) -> str | None:
        """The series to compare with: the chosen one, else softmax attention, else the first."""
        softmax = self.cases.loc[self.cases["mechanism"] == SOFTMAX, "series"]
        return self.against or next(map(str, [*softmax, *self.cases["series"]]), None)

    @cached_property
    def ratios(self) -> Ratios:
        """The ratios of times of series that took turns."""
        return Ratios(self.sweep)

    @cached_property
    def standings(self) -> Standings:
        """The comparisons of all series at each length."""
        return Standings(self.cases, self.ratios)

    @cached_property
    def answers(self) -> Answers:
        """What the sweep found."""
        departing = {w.details["series"] for w in self.warnings if w.kind is WarningKind.DEPARTS}
        return answers(
            self.cases, self.standings, self.baseline, self.crossovers, self.speedups, departing
        )

    @cached_property
    def speedups(self) -> Frame | None:
        """`scaling.speedups` over the baseline; None with fewer than two series."""
        if self.baseline is None or self.cases["series"].nunique() < 2:
            return None
        return speedups(self.cases, self.baseline, self.ratios)

    @cached_property
    def crossovers(self) -> Frame:
        """`scaling.crossovers` of times; only those with the chosen series, if any."""
        return crossovers(self.cases, baseline=self.against, ratios=self.ratios)

    @cached_property
    def memory_crossovers(self) -> Frame:
        """The same of allocated peaks."""
        return crossovers(self.cases, "allocated_peak_bytes", self.against)

    @cached_property
    def decoding(self) -> Frame:
        """`scaling.decoding` of each series; empty if nothing was decoded."""
        return scaling.decoding(self.cases)

    @cached_property
    def exponents(self) -> Frame:
        """`scaling.scaling`, judged by the cards."""
        fits = scaling.scaling(self.cases)
        return scaling.judged(fits, self.sweep.cards, self.sweep.request.level)

    @cached_property
    def local_slopes(self) -> Frame:
        """`scaling.local_slopes` of times, with `expected`, the exponent of the card."""
        slopes = scaling.local_slopes(self.cases)
        rows = slopes.assign(metric="time_s")
        stated = scaling.expected(rows, self.sweep.cards, self.sweep.request.level)
        return slopes.assign(expected=stated)

    @cached_property
    def roof(self) -> roofline.Roof | None:
        """The peaks of the machine, raised to the best case; None if not measured."""
        return roofline.roof(self.sweep, self.cases)

    @property
    def no_roof(self) -> str:
        """Why there is no roof, or nothing."""
        return roofline.missing_peaks(self.sweep)

    @cached_property
    def roofline(self) -> Frame | None:
        """`roofline.roofline`; None without a roof."""
        return None if self.roof is None else roofline.roofline(self.cases, self.roof)

    @cached_property
    def rates(self) -> Frame:
        """`roofline.rates` of the core and the rest."""
        return roofline.rates(self.cases)

    @cached_property
    def precision(self) -> Frame:
        """`summary.precision` of each form."""
        return precision(self.cases)

    @cached_property
    def kernels(self) -> Frame:
        """`summary.kernels` of fused attention."""
        return kernels(self.cases)

    @cached_property
    def prediction_errors(self) -> Frame:
        """`summary.prediction_errors` of each mechanism."""
        return prediction_errors(self.cases)

    @cached_property
    def drift(self) -> noise.Drift | None:
        """The trend of times over the sweep."""
        return noise.drift(self.sweep)

    @cached_property
    def widening(self) -> float | None:
        """The factor by which variation between processes widens the intervals."""
        return noise.widening(self.sweep)

    @cached_property
    def nodes(self) -> list[str]:
        """Where a divided sweep ran, in the order of its runs; none if it was not divided."""
        origins = (run.origin for run in self.sweep.runs)
        return list(dict.fromkeys(origin.node for origin in origins if origin.shard))

    @cached_property
    def node_share(self) -> float | None:
        """The share of the variance between processes that lies between nodes."""
        return noise.node_share(self.sweep)

    @property
    def process_spread(self) -> float | None:
        """The standard deviation of a log time between processes; None after one round."""
        if IntervalKind.ROUNDS not in set(self.cases["interval_kind"]):
            return None
        return float((self.cases["time_log_se"] * np.sqrt(self.cases["rounds"])).median())

    @cached_property
    def warnings(self) -> tuple[SweepWarning, ...]:
        """Reasons to trust the numbers less, the most serious first."""
        return tuple(starmap(SweepWarning, _warnings(self)))


def analyse(sweep: Sweep, against: str | None = None) -> Analysis:
    """The analysis of a sweep; `against` is the mechanism or series to compare with.

    Raises `UnknownMechanism` with the known names if the sweep lacks it, and `UsageError` if it has
    several variants.
    """
    sweep = variant(sweep, None)
    cases = summary(sweep)
    return Analysis(sweep=sweep, cases=cases, against=_series(cases, against) if against else None)


def _series(cases: Frame, name: str) -> str:
    """The series of that name, or the first of the mechanism of that name."""
    if name in set(cases["series"]):
        return name
    series = cases.loc[cases["mechanism"] == name, "series"]
    if not len(series):
        known = ", ".join(dict.fromkeys(cases["mechanism"])) or "none"
        raise UnknownMechanism(f"no mechanism {name!r} in the sweep; known: {known}")
    return str(series.iloc[0])


Warnings = Iterator[tuple[WarningKind, dict[str, Any]]]


def _warnings(analysis: Analysis) -> Warnings:
    sweep, cases = analysis.sweep, analysis.cases
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


def _of_a_gpu(analysis: Analysis) -> Warnings:
    """What times and memory of a GPU do not include."""
    runs, cases = analysis.sweep.runs, analysis.cases
    if len(bound := cases.loc[cases["launch_bound"], "key"]):
        visible = len({run.case for run in runs if shows_launches(run)})
        measured = int(cases["time_s"].notna().sum())
        yield WarningKind.LAUNCH_BOUND, {"cases": len(bound), "of": measured, "visible": visible}
    for reason in dict.fromkeys(run.notes["nvml"] for run in runs if "nvml" in run.notes):
        yield WarningKind.HIDDEN, {"reason": reason}


def _disturbed(analysis: Analysis) -> Warnings:
    """Disturbances of the machine: before the first run, during runs, and over the sweep."""
    sweep = analysis.sweep
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
    if reasons := Counter(filter(None, (run.notes.get("throttle") for run in timed))):
        yield WarningKind.THROTTLED, {"reasons": dict(reasons)}
    if low := sum("clock" in run.notes for run in timed):
        yield WarningKind.LOW_CLOCK, {"runs": low, "of": len(timed)}
    drift = analysis.drift
    if drift and (drift.change.low >= 1 + DRIFT or drift.change.high <= 1 - DRIFT):
        yield WarningKind.DRIFTED, {"drift": drift}
