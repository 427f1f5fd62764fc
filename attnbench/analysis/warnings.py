"""Reasons to trust the numbers of a sweep less: the test and the sentence of each."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from statistics import median
from types import MappingProxyType
from typing import NamedTuple

from attnbench import units
from attnbench.analysis.recorded import other_types
from attnbench.analysis.summary import Frame, shows_launches, timed_runs
from attnbench.records import AWAY, OTHERS, Clock, Disturbance, Planned, Run, Sweep
from attnbench.statistics.curves import series_names
from attnbench.statistics.estimate import IntervalKind
from attnbench.units import many, percent

# limits above which a warning is given
BUSY = 0.5  # load of other programs, as a share of the cores
LAPS = 0.01  # disturbed laps, as a share of all
KEPT_CACHES = 2  # a state of fewer is partly in the L2 cache when a step is repeated
UNFUSED = "attention_math"  # of torch: the operator that stores the weights
CLOCK = 0.95  # of the highest clock among cases that are compared

# what the notes of runs say, of each series once
DEPENDS = "; times and results may depend on it"
NOTES: Mapping[str, str] = MappingProxyType({
    "changed": "{series} changed {note}" + DEPENDS,
    **dict.fromkeys(("odd", "processes", "later"), "{series} {note}" + DEPENDS),
    "unexamined": "{series} {note}",
    "garbage": "{series} {note}",
    "departs": "{series} ({package}) departs from the equations: {note}",
    "energy": "energy was not measured: {note}",
})  # fmt: skip
# what disturbed laps even when they were taken again
BESIDE = MappingProxyType({
    Disturbance.FAULTS: "{} paid for page faults",
    Disturbance.SLOW_CORE: "{} ran while the core was slow",
})  # fmt: skip


class SweepWarning(NamedTuple):
    """A warning of a sweep in one line.

    What calls for no action is a `note` among the conditions.
    """

    text: str
    note: bool = False


def warnings(sweep: Sweep, cases: Frame) -> Iterator[SweepWarning]:
    """The warnings of a sweep, the most serious first."""
    names = series_names(sweep.plan)
    causal = {run.case for run in sweep.runs if "causal" in run.notes}
    yield from map(SweepWarning, _of_the_sweep(sweep))
    yield from map(SweepWarning, mixed_causality(sweep.plan, causal))
    yield from map(SweepWarning, _of_mechanisms(sweep.runs, cases, names))
    yield from map(SweepWarning, _of_times(sweep, cases, names))
    yield from map(SweepWarning, _of_kernels(sweep, cases))
    yield from map(SweepWarning, _of_the_machine(sweep, cases))
    for reason in dict.fromkeys(run.notes["nvml"] for run in sweep.runs if "nvml" in run.notes):
        yield SweepWarning(f"NVML does not show the memory of single processes ({reason})", True)
    laps = [sample.disturbed for run in timed_runs(sweep.runs) for sample in run.samples]
    if (disturbed := Counter(filter(None, laps))).total() > LAPS * len(laps):
        parts = " and ".join(BESIDE[by].format(count) for by, count in sorted(disturbed.items()))
        yield SweepWarning(f"of {many(len(laps), 'lap')}, {parts}", True)


def _of_the_sweep(sweep: Sweep) -> Iterator[str]:
    """What is missing of the sweep, or was measured elsewhere."""
    if missing := units.few(sweep.missing):
        held = sweep.shards
        shards = f"{len(held)} of {many(held[0].of, 'shard')}"
        yield f"incomplete: {shards}; missing {missing}; attnbench merge adds them"
    yield from sweep.warnings
    if not sweep.finished:
        yield "the sweep did not finish; --resume continues it"
    if len({session.fingerprint for session in sweep.sessions}) > 1:
        yield (
            "times come from sessions on different machines or versions; measure everything again"
            " on one"
        )
    for others in dict.fromkeys(s.notes[OTHERS] for s in sweep.sessions if OTHERS in s.notes):
        yield f"other processes used the GPU when the sweep began: {others}"


def mixed_causality(plan: Sequence[Planned], found: Collection[str] = ()) -> Iterator[str]:
    """A warning if some series of passes are causal, but not all; `found` are cases seen to be."""
    names = series_names(plan)
    passes = [planned.case for planned in plan if not planned.case.workload.steps]
    causal = {names[case.key] for case in passes if case.workload.causal or case.key in found}
    every = dict.fromkeys(names[case.key] for case in passes)
    if 0 < len(causal) < len(every):
        listed = ", ".join(series for series in every if series in causal)
        yield (
            f"always causal, while the others attend to all tokens: {listed}; --causal makes all"
            " causal"
        )


def _of_mechanisms(runs: Sequence[Run], cases: Frame, names: Mapping[str, str]) -> Iterator[str]:
    """What mechanisms do to their process, and how they compute; each once."""
    for series, signs in _marked(cases, "suspect"):
        yield f"{series} {signs}: it is shown, and not ranked"
    examined = {names.get(run.case) for run in runs if "examined" in run.notes}
    said: dict[str, None] = {}
    for run in runs:
        series, package = names.get(run.case, run.case), run.notes.get("package", "")
        for kind, text in NOTES.items():
            if (note := run.notes.get(kind)) and not (kind == "unexamined" and series in examined):
                said[text.format(series=series, note=note, package=package)] = None
    yield from said
    for (mechanism, dtype), types in other_types(cases).items():
        yield (
            f"{mechanism} computed in {', '.join(types)}, through autocast or its own casts;"
            f" compare its costs with those of that type, not {dtype}"
        )
    for series, arithmetic in _marked(cases, "arithmetic"):
        yield (
            f"{series} multiplies float32 on tensor cores ({arithmetic}: each number is split in"
            " two), and other forms do not; --dtype bf16 compares both on the same units"
        )


def _marked(cases: Frame, column: str) -> Iterator[tuple[str, str]]:
    """Each series that has texts in a column of the cases, with each of these once."""
    rows = cases.loc[cases[column] != "", ["series", column]].drop_duplicates()
    yield from rows.itertuples(index=False)


def _of_times(sweep: Sweep, cases: Frame, names: Mapping[str, str]) -> Iterator[str]:
    """Series whose times are not those of the others, and what the times of a GPU include."""
    for series, share in _away(sweep.runs, names).items():
        yield (
            f"{series} sleeps or lets other processes compute for {percent(share)} of its time,"
            " which CPU time does not see; its times are wall time without waiting for a core"
        )
    if bound := int(cases["launch_bound"].sum()):
        visible = len({run.case for run in sweep.runs if shows_launches(run)})
        yield (
            f"{bound} of {cases['time_s'].notna().sum()} cases are launch-bound: the host enqueues"
            " an iteration more slowly than the GPU runs it; cases.csv has their wall times, and"
            " --cuda-graphs times replays without launches"
            + (f"; the GPU's times of {visible} of them include it" if visible else "")
            + (", so these are not ranked" if visible else "")
        )
    # a clock that is low for all of a block biases no ratio
    best = cases.groupby(["mode", "seq_len", "sizes"])["sm_clock_hz"].transform("max")
    clocks = (cases["sm_clock_hz"] / best).groupby(cases["series"], sort=False).min()
    for name, share in clocks[clocks < CLOCK].items():
        yield (
            f"{name} ran at {percent(share)} of the GPU's clock in others that it is compared with"
        )
    timed = timed_runs(sweep.runs)
    if reasons := Counter(filter(None, (run.notes.get("throttle") for run in timed))):
        parts = "; ".join(f"{by} in {many(runs, 'run')}" for by, runs in reasons.items())
        yield f"the GPU was throttled: {parts}; cool it or raise its limits, and measure again"
    if low := sum("clock" in run.notes for run in timed):
        yield (
            f"the GPU's clock was far below its maximum in samples of {low} of {len(timed)} timed"
            " runs; lock its clock, and measure again"
        )


def _of_kernels(sweep: Sweep, cases: Frame) -> Iterator[str]:
    """Kernels that store what a fused one does not, and states that a GPU's cache keeps."""
    unfused = cases[cases["attention_kernel"].str.contains(UNFUSED)]
    for series, own in unfused.groupby("series", sort=False):
        yield (
            f"{series} stored all scores in {many(len(own), 'case')}: torch has no fused kernel for"
            " its number type, mask and width here"
        )
    caches = {session.notes.get("L2 cache", "") for session in sweep.sessions} - {""}
    if caches and not sweep.request.settings.cold:
        cache_bytes = 1024 * max(int(cache.split()[0]) for cache in caches)
        if kept := int((cases["state_bytes"] < KEPT_CACHES * cache_bytes).sum()):
            yield (
                f"the states of {many(kept, 'case')} are smaller than {KEPT_CACHES} of the GPU's L2"
                f" caches ({units.size(cache_bytes)}), which keeps them between steps as no model"
                " does; --cold flushes it"
            )


def _away(runs: Sequence[Run], names: Mapping[str, str]) -> dict[str, float]:
    """Series away over `AWAY` of the median lap of a case, with the largest of these shares."""
    shares: dict[str, list[float]] = {}
    for run in timed_runs(runs):
        timed = [s for s in run.samples if s.clock == Clock.CPU]
        shares.setdefault(run.case, []).extend(s.away_s / s.wall_s for s in timed)
    cases = sorted((median(own), names.get(case, case)) for case, own in shares.items() if own)
    return {series: share for share, series in cases if share > AWAY}


def _of_the_machine(sweep: Sweep, cases: Frame) -> Iterator[str]:
    """The load of other programs, at the start and when runs began; and a single round.

    Load does not disturb CPU time on one core; what it does to clock rates is seen beside each lap.
    """
    cores = max((session.cores for session in sweep.sessions), default=1)
    threads = max((session.threads for session in sweep.sessions), default=1)
    loads = [run.values.get("load_before", 0.0) - threads for run in timed_runs(sweep.runs)]
    load = max([*loads, *(session.load or 0.0 for session in sweep.sessions)], default=0.0)
    if load > BUSY * cores and sweep.request.settings.clock is not Clock.CPU:
        yield (
            f"the machine was busy: load {load:.1f} on {many(cores, 'core')} by other programs;"
            " measure again when it is idle"
        )
    kinds = set(cases.loc[cases["time_s"].notna(), "interval_kind"])
    if kinds and IntervalKind.ROUNDS not in kinds:
        yield (
            "one round only: confidence intervals do not include variation between processes; a"
            " larger --budget or more --rounds do"
        )
