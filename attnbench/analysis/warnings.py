"""Reasons to trust the numbers of a sweep less: one table of kinds, tests and sentences."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from statistics import median
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from attnbench.analysis.statistics.curves import series_names
from attnbench.analysis.statistics.estimate import IntervalKind
from attnbench.analysis.summary import Frame, shows_launches, timed_runs
from attnbench.records import AWAY, ITEM_BYTES, LOST, OTHERS, Clock, Planned, Sweep, notes, units

# limits above which a warning is given
BUSY = 0.5  # load of other programs, as a share of the cores
KEPT_CACHES = 2  # a state of fewer is partly in the L2 cache when a step is repeated
UNFUSED = "attention_math"  # of torch: the operator that stores the weights
CLOCK = 0.95  # of the highest clock among cases that are compared


class Evidence(NamedTuple):
    """What tests look at: a sweep, its cases, and the series of a case by its key."""

    sweep: Sweep
    cases: Frame
    names: Mapping[str, str]


Values: TypeAlias = tuple[object, ...]  # they fill the sentence of one warning
Test: TypeAlias = Callable[[Evidence], Iterable[Values]]


def warnings(sweep: Sweep, cases: Frame) -> Iterator[str]:
    """The warnings of a sweep, each once, the most serious first."""
    evidence = Evidence(sweep, cases, series_names(sweep.plan))
    for test, sentence in WARNINGS.values():
        yield from dict.fromkeys(sentence.format(*values) for values in test(evidence))


def planned_warnings(plan: Sequence[Planned]) -> Iterator[str]:
    """The warnings that a plan gives before anything has run."""
    _, sentence = WARNINGS["causality"]
    return (sentence.format(*values) for values in mixed_causality(plan))


def mixed_causality(plan: Sequence[Planned], observed: Collection[str] = ()) -> Iterator[Values]:
    """The series of passes that are causal, in a text, if some are and others are not.

    observed: keys of cases that were seen to be causal, though nobody asked for that
    """
    names = series_names(plan)
    passes = [planned.case for planned in plan if not planned.case.workload.steps]
    causal = {names[case.key] for case in passes if case.workload.causal or case.key in observed}
    every = dict.fromkeys(names[case.key] for case in passes)
    if 0 < len(causal) < len(every):
        yield (", ".join(series for series in every if series in causal),)


def _when(true: Callable[[Sweep], bool]) -> Test:
    """A sentence without values, if that is true of the sweep."""
    return lambda evidence: [()] if true(evidence.sweep) else []


def _noted(kind: notes.Note) -> Test:
    """The series, note and package of each run that has a note of this kind."""
    return lambda evidence: (
        (
            evidence.names.get(run.case, run.case),
            run.notes[kind],
            run.notes.get(notes.Note.PACKAGE, ""),
        )
        for run in evidence.sweep.runs
        if kind in run.notes
    )


def _marked(column: str) -> Test:
    """Each series that has texts in a column of the cases, with each of these."""
    return lambda evidence: evidence.cases.loc[
        evidence.cases[column] != "", ["series", column]
    ].itertuples(index=False)


def _missing_shards(evidence: Evidence) -> Iterator[Values]:
    if missing := units.few(evidence.sweep.missing):
        held = evidence.sweep.shards
        yield len(held), units.many(held[0].of, "shard"), missing


def _causal(evidence: Evidence) -> Iterable[Values]:
    seen = {run.case for run in evidence.sweep.runs if notes.Note.CAUSAL in run.notes}
    return mixed_causality(evidence.sweep.plan, seen)


def _unexamined(evidence: Evidence) -> Iterable[Values]:
    """Series of which no run could be examined."""
    examined = {series for series, *_ in _noted(notes.Note.EXAMINED)(evidence)}
    return (
        values for values in _noted(notes.Note.UNEXAMINED)(evidence) if values[0] not in examined
    )


def _uncounted(evidence: Evidence) -> Iterable[Values]:
    """Each series whose peaks miss memory, with what they miss at its longest length."""
    rows = evidence.cases[evidence.cases["uncounted"] != ""].sort_values("seq_len", kind="stable")
    return dict(zip(rows["series"], rows["uncounted"], strict=True)).items()


def _types(evidence: Evidence) -> Iterator[Values]:
    """Types other than the case's, except wider ones, which sums and softmax often use."""
    by_dtype = evidence.cases.groupby(["mechanism", "dtype"], sort=False)["number_types"]
    for (mechanism, dtype), recorded in by_dtype:
        names = {name for text in recorded for name in text.split(", ") if name}
        item_bytes = ITEM_BYTES.get(str(dtype), 0)
        wider = {name for name in names if ITEM_BYTES.get(name, 0) > item_bytes}
        if others := sorted(names - wider - {dtype}):
            yield mechanism, ", ".join(others), dtype


def _away(evidence: Evidence) -> Iterable[Values]:
    """Series away over `AWAY` of the median lap of a case, with the largest of these shares."""
    shares: dict[str, list[float]] = {}
    for run in timed_runs(evidence.sweep.runs):
        timed = [s for s in run.samples if s.clock == Clock.CPU]
        shares.setdefault(run.case, []).extend(s.away_s / s.wall_s for s in timed)
    cases = sorted(
        (median(case_shares), evidence.names.get(key, key))
        for key, case_shares in shares.items()
        if case_shares
    )
    largest = {series: share for share, series in cases if share > AWAY}
    return ((series, units.percent(share)) for series, share in largest.items())


def _launch_bound(evidence: Evidence) -> Iterator[Values]:
    if bound := int(evidence.cases["launch_bound"].sum()):
        yield bound, evidence.cases["time_s"].notna().sum()


def _show_launches(evidence: Evidence) -> Iterator[Values]:
    if visible := len({run.case for run in evidence.sweep.runs if shows_launches(run)}):
        yield (units.many(visible, "case"),)


def _clocks(evidence: Evidence) -> Iterable[Values]:
    """A clock that is low for all of a block biases no ratio."""
    cases = evidence.cases
    best = cases.groupby(["mode", "seq_len", "sizes"])["sm_clock_hz"].transform("max")
    clocks = (cases["sm_clock_hz"] / best).groupby(cases["series"], sort=False).min()
    return ((name, units.percent(share)) for name, share in clocks[clocks < CLOCK].items())


def _throttled(evidence: Evidence) -> Iterator[Values]:
    timed = timed_runs(evidence.sweep.runs)
    reasons = Counter(filter(None, (run.notes.get(notes.Note.THROTTLE) for run in timed)))
    reasons["a clock far below its maximum"] += sum(notes.Note.CLOCK in run.notes for run in timed)
    if parts := "; ".join(
        f"{by} in {units.many(runs, 'run')}" for by, runs in reasons.items() if runs
    ):
        yield (parts,)


def _unfused(evidence: Evidence) -> Iterable[Values]:
    unfused = evidence.cases[evidence.cases["attention_kernel"].str.contains(UNFUSED)]
    return (
        (series, units.many(runs, "case"))
        for series, runs in unfused["series"].value_counts().items()
    )


def _cached(evidence: Evidence) -> Iterator[Values]:
    caches = {session.notes.get("L2 cache", "") for session in evidence.sweep.sessions} - {""}
    if caches and not evidence.sweep.request.settings.cold:
        cache_bytes = 1024 * max(int(cache.split()[0]) for cache in caches)
        if kept := int((evidence.cases["state_bytes"] < KEPT_CACHES * cache_bytes).sum()):
            yield units.many(kept, "case"), KEPT_CACHES, units.size(cache_bytes)


def _busy(evidence: Evidence) -> Iterator[Values]:
    """Load does not disturb CPU time; what it does to clock rates is seen beside each lap."""
    sessions = evidence.sweep.sessions
    cores = max((session.cores for session in sessions), default=1)
    threads = max((session.threads for session in sessions), default=1)
    timed = timed_runs(evidence.sweep.runs)
    loads = [run.values.get("load_before", 0.0) - threads for run in timed]
    load = max([*loads, *(session.load or 0.0 for session in sessions)], default=0.0)
    if load > BUSY * cores and evidence.sweep.request.settings.clock is not Clock.CPU:
        yield f"{load:.1f}", units.many(cores, "core")


def _single_round(evidence: Evidence) -> Iterator[Values]:
    kinds = set(evidence.cases.loc[evidence.cases["time_s"].notna(), "interval_kind"])
    if kinds and IntervalKind.ROUNDS not in kinds:
        yield ()


def _warned(*kinds: notes.Note) -> dict[str, tuple[Test, str]]:
    """The test and the sentence of notes of which each is a warning by itself."""
    return {kind.value: (_noted(kind), notes.NOTES[kind].warning) for kind in kinds}


# kinds of warnings, the most serious first: the test and the sentence of each
WARNINGS: Mapping[str, tuple[Test, str]] = MappingProxyType({
    "shards": (_missing_shards, "incomplete: {} of {}; missing {}; attnbench merge adds them"),
    "journal": (lambda evidence: zip(evidence.sweep.warnings), "{}"),
    "unfinished": (_when(lambda sweep: not sweep.finished),
                   "the sweep did not finish; --resume continues it"),
    "machines": (_when(lambda sweep: len({one.fingerprint for one in sweep.sessions}) > 1),
                 "times come from sessions on different machines or versions; measure everything"
                 " again on one"),
    "system": (_when(lambda sweep: any(LOST in session.notes for session in sweep.sessions)),
               "measured on a system without what measuring uses on Linux: times vary more, and"
               " less is known of memory that torch does not allocate; its journal has all of it"),
    "shared GPU": (lambda evidence: zip(s.notes[OTHERS] for s in evidence.sweep.sessions
                                     if OTHERS in s.notes),
                   "other processes used the GPU when the sweep began: {}"),
    "causality": (_causal,
                  "always causal, while tokens of the others see later ones: {}; --causal makes all"
                  " causal"),
    "suspect": (_marked("suspect"), notes.NOTES[notes.Note.SUSPECT].warning),
    **_warned(notes.Note.CHANGED, notes.Note.ODD, notes.Note.PROCESSES, notes.Note.LATER),
    "unexamined": (_unexamined, notes.NOTES[notes.Note.UNEXAMINED].warning),
    **_warned(notes.Note.GARBAGE, notes.Note.DEPARTS),
    "uncounted": (_uncounted, "the peaks of {} miss memory outside of torch: {}"),
    **_warned(notes.Note.ENERGY),
    "types": (_types, "{} computed in {}, through autocast or its own casts; compare its costs"
                      " with others in that type, not {}"),
    "arithmetic": (_marked("arithmetic"),
                   "{} multiplies float32 on tensor cores ({}: each number is split in two), and"
                   " other forms do not; --dtype bf16 compares both on the same units"),
    "away": (_away, "{} sleeps or lets other processes compute for {} of its time, which CPU time"
                    " does not see; its times are wall time without waiting for a core"),
    "launch-bound": (_launch_bound,
                     "{} of {} cases are launch-bound: the host enqueues an iteration more slowly"
                     " than the GPU runs it; cases.csv has their wall times, and --cuda-graphs"
                     " times replays without launches"),
    "launches": (_show_launches, "the GPU's times of {} include launches that could not be hidden,"
                                 " so these are not ranked"),
    "clocks": (_clocks, "{} ran at {} of the clock that the GPU had for others in the comparison"),
    "throttled": (_throttled, "the GPU was throttled: {}; cool it, raise its limits or lock its"
                              " clock, and measure again"),
    "unfused": (_unfused, "{} stored all scores in {}: torch has no fused kernel for its number"
                          " type, mask and width here"),
    "cached": (_cached, "the states of {} are smaller than {} of the GPU's L2 caches ({}), which"
                        " keeps them between steps as no model does; --cold flushes it"),
    "busy": (_busy, "the machine was busy: load {} on {} by other programs; measure again when it"
                    " is idle"),
    "one round": (_single_round,
                  "one round only: intervals lack the variation between processes and are too"
                  " narrow; use a larger --budget or more --rounds"),
})  # fmt: skip
