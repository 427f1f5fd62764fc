"""Reasons to trust the numbers of a sweep less."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from statistics import median
from types import MappingProxyType
from typing import Any, NamedTuple

from attnbench.analysis.summary import Frame, other_types, shows_launches, timed_runs
from attnbench.analysis.trust import Drift
from attnbench.records import AWAY, OTHERS, Clock, Run, Sweep
from attnbench.statistics.curves import series_names
from attnbench.statistics.estimate import IntervalKind

# limits above which a warning is given
DRIFT = 0.03  # of times over a sweep, with its whole confidence interval
BUSY = 0.5  # load of other programs, as a share of the cores
SHOWN = 8  # missing shards; there may be millions
LAPS = 0.01  # disturbed laps, as a share of all
CLOCK = 0.95  # of the highest clock among cases that are compared

# how the notes of runs say what a mechanism did to its process
CHANGES = MappingProxyType({
    "changed": "changed {}", "autocast": "ran under autocast ({})",
    "odd": "{}", "recompiled": "{}", "processes": "{}", "later": "{}",
})  # fmt: skip


class WarningKind(StrEnum):
    """Reasons to trust the numbers of a sweep less; the comments name the details of each."""

    INCOMPLETE = "shards are missing"  # shards, of, missing: the first of them
    JOURNAL = "part of the journal was set aside"  # text
    UNFINISHED = "the sweep did not finish"
    CAUSAL = "causal and full attention are compared"  # series: those that are causal
    MIXED = "sessions ran on different machines or versions"
    SIDE_EFFECTS = "a mechanism changed the state of its process"  # series, change
    OTHER_TYPE = "a mechanism computed in another number type"  # mechanism, types, dtype
    SPLITS = "a form multiplies float32 in a way of its own"  # series, arithmetic
    DEVIATES = "a form of another package computes another function"  # series, package, departs
    SUSPECT = "a mechanism does not do its work"  # series, signs
    NOTED = "something to know of a series"  # series, change
    AWAY = "a mechanism computes where CPU time does not see it, or sleeps"  # series, share
    REMAPPED = "memory was too short to keep pages"  # series, lengths
    BUSY = "the machine was busy at the start"  # load, cores
    LOADED = "runs began under the load of other programs"  # runs, of, limit, load, threads
    THROTTLED = "the GPU was slowed down"  # reasons: the number of runs of each
    LOW_CLOCK = "the clock of the GPU was low"  # runs, of
    UNEVEN_CLOCK = "the clock of the GPU differed between cases that are compared"  # series, share
    NO_ENERGY = "energy was not measured"  # reason
    LAUNCH_BOUND = "the host was slower than the GPU"  # cases, of, visible
    SHARED = "other processes used the GPU at the start"  # others
    HIDDEN = "NVML did not show the memory of processes"  # reason
    DISTURBED = "laps were disturbed"  # laps: how many by each `Disturbance`; of
    DRIFTED = "times drifted over the sweep"  # drift
    ONE_ROUND = "there was one round only"


class SweepWarning(NamedTuple):
    """A warning as data, with the details that `WarningKind` names."""

    kind: WarningKind
    details: Mapping[str, Any]


Warnings = Iterator[tuple[WarningKind, dict[str, Any]]]


def warnings(sweep: Sweep, cases: Frame, drift: Drift | None) -> Warnings:
    """The warnings of a sweep, the most serious first: the kind of each with its details."""
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
    names = series_names(sweep.plan)
    found_causal = {names.get(run.case) for run in sweep.runs if "causal" in run.notes}
    passes = [planned.case for planned in sweep.plan if not planned.case.workload.steps]
    all_series = dict.fromkeys(names[case.key] for case in passes)
    asked = {names[case.key] for case in passes if case.workload.causal}
    causal = [series for series in all_series if series in asked | found_causal]
    if 0 < len(causal) < len(all_series):
        yield WarningKind.CAUSAL, {"series": causal}
    pairs = cases.loc[cases["suspect"] != "", ["series", "suspect"]].drop_duplicates()
    for series, signs in pairs.itertuples(index=False):
        yield WarningKind.SUSPECT, {"series": series, "signs": signs}
    yield from _side_effects(sweep.runs, names)
    for (mechanism, dtype), types in other_types(cases).items():
        details = {"mechanism": mechanism, "types": types, "dtype": dtype}
        yield WarningKind.OTHER_TYPE, details
    yield from _splitting(cases)
    yield from _deviating(sweep.runs, names)
    yield from _away(sweep.runs, names)
    remapped = cases[cases["remapped"]].groupby("series", sort=False)["seq_len"]
    for series, lengths in remapped.unique().items():
        yield WarningKind.REMAPPED, {"series": series, "lengths": [*map(int, lengths)]}
    for others in dict.fromkeys(s.notes[OTHERS] for s in sweep.sessions if OTHERS in s.notes):
        yield WarningKind.SHARED, {"others": others}
    yield from _of_a_gpu(sweep.runs, cases)
    yield from _disturbed(sweep, drift)
    kinds = set(cases.loc[cases["time_s"].notna(), "interval_kind"])
    if kinds and IntervalKind.ROUNDS not in kinds:
        yield WarningKind.ONE_ROUND, {}


def _side_effects(runs: Sequence[Run], names: Mapping[str, str]) -> Warnings:
    """Each change that a mechanism made to its process, and each note on it, once."""
    changes: dict[tuple[WarningKind, str, str], None] = {}
    examined = {names.get(run.case) for run in runs if "examined" in run.notes}
    for run in runs:
        name = names.get(run.case, run.case)
        for note, text in CHANGES.items():
            if found := run.notes.get(note):
                changes[WarningKind.SIDE_EFFECTS, name, text.format(found)] = None
        for note in ("unexamined", "unseen", "garbage"):
            if (found := run.notes.get(note)) and (note != "unexamined" or name not in examined):
                changes[WarningKind.NOTED, name, found] = None
    for kind, name, change in changes:
        yield kind, {"series": name, "change": change}


def _splitting(cases: Frame) -> Warnings:
    """Each series whose float32 products are not those of the other forms, once."""
    noted = cases.loc[cases["arithmetic"] != "", ["series", "arithmetic"]].drop_duplicates()
    for series, arithmetic in noted.itertuples(index=False):
        yield WarningKind.SPLITS, {"series": series, "arithmetic": arithmetic}


def _deviating(runs: Sequence[Run], names: Mapping[str, str]) -> Warnings:
    """Each series with a form of another package that departs from the equations, once."""
    deviating = {
        (names.get(run.case, run.case), run.notes.get("package", ""), run.notes["departs"]): None
        for run in runs
        if "departs" in run.notes
    }
    for name, package, departs in deviating:
        yield WarningKind.DEVIATES, {"series": name, "package": package, "departs": departs}


def _away(runs: Sequence[Run], names: Mapping[str, str]) -> Warnings:
    """Each series away over `AWAY` of the median lap of a case, once, with the largest share."""
    shares: dict[str, list[float]] = {}
    for run in timed_runs(runs):
        timed = [s for s in run.samples if s.clock == Clock.CPU]
        shares.setdefault(run.case, []).extend(s.away_s / s.wall_s for s in timed)
    most: dict[str, float] = {}
    for case, own in shares.items():
        if own and (share := median(own)) > AWAY:
            name = names.get(case, case)
            most[name] = max(share, most.get(name, 0.0))
    for name, share in most.items():
        yield WarningKind.AWAY, {"series": name, "share": share}


def _clocks(cases: Frame) -> Warnings:
    """Each series whose clock was lower than that of another it raced with, at its lowest share.

    A clock that is low for all of them biases no ratio.
    """
    clocks = cases.get("sm_clock_hz")
    if clocks is None:
        return
    blocks = [cases[name] for name in ("mode", "seq_len", "width", "heads", "dtype", "batch")]
    shares = clocks / clocks.groupby(blocks).transform("max")
    for series, share in shares.groupby(cases["series"], sort=False).min().items():
        if share < CLOCK:
            yield WarningKind.UNEVEN_CLOCK, {"series": series, "share": share}


def _of_a_gpu(runs: Sequence[Run], cases: Frame) -> Warnings:
    """What times and memory of a GPU do not include."""
    if len(bound := cases.loc[cases["launch_bound"], "key"]):
        visible = len({run.case for run in runs if shows_launches(run)})
        measured = int(cases["time_s"].notna().sum())
        yield WarningKind.LAUNCH_BOUND, {"cases": len(bound), "of": measured, "visible": visible}
    yield from _clocks(cases)
    for kind, note in ((WarningKind.NO_ENERGY, "energy"), (WarningKind.HIDDEN, "nvml")):
        for reason in dict.fromkeys(run.notes[note] for run in runs if note in run.notes):
            yield kind, {"reason": reason}


def _disturbed(sweep: Sweep, drift: Drift | None) -> Warnings:
    """Disturbances of the machine: before the first run, during runs, and over the sweep.

    Load alone does not disturb CPU time on one core; what it does to caches and clock rates is seen
    beside each lap.
    """
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
