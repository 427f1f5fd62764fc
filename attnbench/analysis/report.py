"""Everything that a report states about a sweep, computed once; `render` only writes it.

Whatever is compared, fitted or drawn belongs to one variant, so a sweep of several widths, heads,
number types or batches is split up, and each variant analysed as a sweep of its own. It is named
after what differs, as in the labels of cases: `D512-bfloat16`. Sweeps of several devices become
curves side by side, each named after its device.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import starmap
from types import MappingProxyType
from typing import TypeVar

import numpy as np
import pandas as pd

from attnbench.analysis import scaling, stacks, summary, trust
from attnbench.analysis.answers import Answers, answers, rows
from attnbench.analysis.scaling import crossovers, speedups
from attnbench.analysis.standings import Standings, comparable, timed_alike
from attnbench.analysis.summary import Frame
from attnbench.analysis.suspects import rankable
from attnbench.analysis.warnings import SweepWarning, WarningKind, warnings
from attnbench.errors import DifferentSweep, UnknownMechanism, UsageError
from attnbench.metrics import MEMORY, TIME
from attnbench.records import AT, Request, Sweep
from attnbench.statistics.estimate import IntervalKind
from attnbench.statistics.ratios import Ratios

SOFTMAX = "transformer"  # the default mechanism to compare with

LETTERS = MappingProxyType({"width": "D", "heads": "H", "dtype": "", "batch": "B"})

# what has to agree for a series to be the same on each device
SAME = (
    *("level", "dtype", "width", "heads", "layers", "padding", "causal", "dropout"),
    *("share_layers", "reversible"),
)

T = TypeVar("T")


def _of_sweep(function: Callable[[Sweep], T]) -> cached_property[T]:
    """A property computed from the sweep of an analysis; the function documents it."""
    return cached_property(lambda analysis: function(analysis.sweep))


def _of_cases(function: Callable[[Frame], T]) -> cached_property[T]:
    """A property computed from the cases of an analysis; the function documents it."""
    return cached_property(lambda analysis: function(analysis.cases))


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """A sweep and all that follows from it, computed on first use.

    The function that makes a frame documents its columns.
    """

    sweep: Sweep
    cases: Frame  # of `summary`
    against: str | None = None  # the series chosen to compare with
    at_length: int | None = None  # the length chosen for the answers

    ratios = _of_sweep(Ratios)
    drift = _of_sweep(trust.drift)
    widening = _of_sweep(trust.widening)
    node_share = _of_sweep(trust.node_share)
    waiting_share = _of_sweep(trust.waiting_share)
    wall_factor = _of_sweep(trust.wall_factor)
    decoding = _of_cases(scaling.decoding)
    compared = _of_cases(timed_alike)
    precision = _of_cases(summary.precision)
    kernels = _of_cases(summary.kernels)
    prediction_errors = _of_cases(summary.prediction_errors)

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
    def standings(self) -> Standings:
        """The comparisons of all series at each length."""
        return Standings(rankable(self.compared), self.ratios)

    @cached_property
    def answers(self) -> Answers:
        """What the sweep found."""
        deviating = {w.details["series"] for w in self.warnings if w.kind is WarningKind.DEVIATES}
        return answers(self.cases, self.standings, deviating, self.at_length)

    @cached_property
    def rows(self) -> Frame:
        """`answers.rows` at the length of the answers."""
        pairs = self.baseline, self.speedups, self.crossovers
        return rows(self.cases, self.answers, *pairs, self.exponents, self.decoding)

    @cached_property
    def speedups(self) -> Frame | None:
        """`scaling.speedups` over the baseline; None with fewer than two series."""
        if self.baseline is None or self.cases["series"].nunique() < 2:
            return None
        return speedups(self.compared, self.baseline, self.ratios)

    @cached_property
    def crossovers(self) -> Frame:
        """`scaling.crossovers` of times; only those with the chosen series, if any."""
        ranked = rankable(self.compared)
        return crossovers(ranked, baseline=self.against, ratios=self.ratios)

    @cached_property
    def memory_crossovers(self) -> Frame:
        """The same of allocated peaks."""
        ranked = rankable(self.cases)
        return crossovers(comparable(ranked, across=True), MEMORY, self.against)

    @cached_property
    def stacks(self) -> Frame:
        """`stacks.stacks`: stacks beside their layers; empty without stacks."""
        return stacks.stacks(self.sweep, self.cases)

    @cached_property
    def exponents(self) -> Frame:
        """`scaling.scaling`, judged by the cards."""
        fits = scaling.scaling(self.compared)
        return scaling.judged(fits, self.sweep.cards, self.sweep.request.level)

    @cached_property
    def local_slopes(self) -> Frame:
        """`scaling.local_slopes` of times, with `expected`, the exponent of the card."""
        slopes = scaling.local_slopes(self.compared)
        rows = slopes.assign(metric=TIME)
        stated = scaling.expected(rows, self.sweep.cards, self.sweep.request.level)
        return slopes.assign(expected=stated)

    @cached_property
    def nodes(self) -> list[str]:
        """Where a divided sweep ran, in the order of its runs; none if it was not divided."""
        origins = (run.origin for run in self.sweep.runs)
        return list(dict.fromkeys(origin.node for origin in origins if origin.shard))

    @property
    def process_spread(self) -> float | None:
        """The standard deviation of a log time between processes; None after one round."""
        if IntervalKind.ROUNDS not in set(self.cases["interval_kind"]):
            return None
        return float((self.cases["time_log_se"] * np.sqrt(self.cases["rounds"])).median())

    @cached_property
    def warnings(self) -> tuple[SweepWarning, ...]:
        """Reasons to trust the numbers less, the most serious first."""
        found = warnings(self.sweep, self.cases, self.drift)
        return tuple(starmap(SweepWarning, found))


def analyse(sweep: Sweep, against: str | None = None, at_length: int | None = None) -> Analysis:
    """The analysis of a sweep; `against` is the mechanism or series to compare with.

    Its answers are given `at_length`, by default the longest that all mechanisms reached. Raises
    `UnknownMechanism` with the known names if the sweep lacks the mechanism, and `UsageError` if it
    has several variants; its `answers` raise `UsageError` if nothing was timed at the length.
    """
    sweep = variant(sweep, None)
    cases = summary.summary(sweep)
    series = _series(cases, against) if against else None
    return Analysis(sweep=sweep, cases=cases, against=series, at_length=at_length)


def _series(cases: Frame, name: str) -> str:
    """The series of that name, or the first of the mechanism of that name."""
    if name in set(cases["series"]):
        return name
    series = cases.loc[cases["mechanism"] == name, "series"]
    if not len(series):
        known = ", ".join(dict.fromkeys(cases["mechanism"])) or "none"
        raise UnknownMechanism(f"no mechanism {name!r} in the sweep; known: {known}")
    return str(series.iloc[0])


def variants(sweep: Sweep) -> Mapping[str, Sweep]:
    """The part of the sweep of each variant, by its name; the name of a single one is empty."""
    each = sweep.request.per_variant
    differing = [axis for axis in LETTERS if len({getattr(single, axis) for single in each}) > 1]
    names = ("-".join(f"{LETTERS[axis]}{getattr(s, axis)}" for axis in differing) for s in each)
    return {name: part(sweep, single) for name, single in zip(names, each, strict=True)}


def variant(sweep: Sweep, name: str | None) -> Sweep:
    """The part of the sweep of one variant; the name is needed only if there are several.

    Raises `UsageError` listing the names.
    """
    parts = variants(sweep)
    if name is None and len(parts) == 1:
        return sweep
    if name not in parts or not name:
        several = f"has several variants, {', '.join(parts)}; choose one with --at"
        reason = several if len(parts) > 1 else "has no variants; leave out --at"
        raise UsageError(f"the sweep {sweep.name!r} {reason}")
    return parts[name]


def part(sweep: Sweep, single: Request) -> Sweep:
    """The part of the sweep that this request alone would have measured."""
    if single == sweep.request:
        return sweep
    # a request without a fixed batch allows any
    own = {axis: value for axis in LETTERS if (value := getattr(single, axis)) is not None}
    plan = tuple(
        planned
        for planned in sweep.plan
        if all(getattr(planned.case.workload, axis) == value for axis, value in own.items())
    )
    keys = {planned.case.key for planned in plan}
    sessions = sweep.sessions
    if single.dtype != sweep.request.dtype:  # older journals have only the first dtype's peak
        sessions = tuple(replace(s, matmul_flops=s.peaks.get(single.dtype)) for s in sessions)
    return replace(
        sweep,
        request=single,
        sessions=sessions,
        plan=plan,
        runs=tuple(run for run in sweep.runs if run.case in keys),
    )


def concat_cases(cases: Iterable[Frame]) -> Frame:
    """The cases of several variants in one frame."""
    return pd.concat(list(cases), ignore_index=True)


def device_names(sweeps: Sequence[Sweep]) -> list[str]:
    """The device of each sweep, numbered where several have the same one."""
    names = [sweep.sessions[0].device if sweep.sessions else "unknown device" for sweep in sweeps]
    uses = Counter(names)
    return [
        name if uses[name] == 1 else f"{name} ({names[:i].count(name) + 1})"
        for i, name in enumerate(names)
    ]


def side_by_side(sweeps: Sequence[Sweep]) -> Frame:
    """The `summary` of all sweeps, with series such as `transformer:sdpa @ NVIDIA H100`.

    Raises `DifferentSweep` unless they measured the same model and dtype.
    """
    for other in sweeps[1:]:
        pairs = ((n, getattr(sweeps[0].request, n), getattr(other.request, n)) for n in SAME)
        differences = [f"{name}: {a} and {b}" for name, a, b in pairs if a != b]
        if differences:
            raise DifferentSweep(
                f"{sweeps[0].name!r} and {other.name!r} do not belong in one figure"
                f" ({'; '.join(differences)}); report each separately"
            )
    frames = []
    for sweep, device in zip(sweeps, device_names(sweeps), strict=True):
        first = sweeps[0].request
        same = replace(sweep.request, tokens=first.tokens, batch=first.batch)
        cases = summary.summary(replace(sweep, request=same))  # times of the same tokens
        frames.append(cases.assign(series=cases["series"] + AT + device))
    return concat_cases(frames)
