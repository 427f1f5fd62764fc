"""What a sweep found, as data: the answers with which every report begins."""

import math
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pandas as pd

from attnbench.analysis.scaling import Crossed
from attnbench.analysis.standings import Span, Standings, spans
from attnbench.metrics import MEMORY, STATE, TIME
from attnbench.records import Cause, Outcome
from attnbench.statistics.estimate import IntervalKind

# endings that show or predict the limit of a series; the others say nothing about its length
IN_MEMORY = frozenset({Outcome.OOM, Cause.OOM, Cause.MEMORY_LIMIT})
IN_TIME = frozenset({Outcome.TIMEOUT, Cause.TIMEOUT, Cause.CASE_TIMEOUT})
PREDICTED = frozenset({Cause.MEMORY_LIMIT, Cause.CASE_TIMEOUT})


class Speed(StrEnum):
    """One series against the baseline, over the lengths at which both were timed."""

    FASTER = "always faster"
    FASTER_FROM = "faster from a length on"
    SLOWER_FROM = "slower from a length on"
    SLOWER = "always slower"
    UNCLEAR = "cannot tell"
    APART = "no length in common"


@dataclass(frozen=True, kw_only=True)
class Against:
    """A finding; the crossover has a length for `FASTER_FROM` and `SLOWER_FROM` alone.

    `ratio` is the time of the baseline over that of the series at `at`, the longest length at which
    both were timed, with its 95 % confidence interval.
    """

    mode: str
    series: str
    same_function: bool  # another form of the baseline
    finding: Speed
    length: float
    low: float
    high: float
    shortest: int  # both were timed from here on; a crossover here may in fact lie before it
    at: int
    ratio: float
    ratio_low: float
    ratio_high: float


@dataclass(frozen=True, kw_only=True)
class Limit:
    """Where a series stops: its longest measured length, and the first that does not fit."""

    mode: str
    series: str
    fits: int | None  # None: nothing was measured
    stops: int
    cause: str  # a `Cause` or an `Outcome`

    @property
    def is_memory(self) -> bool:
        """Whether memory is the limit, rather than the time of a case."""
        return self.cause in IN_MEMORY

    @property
    def is_predicted(self) -> bool:
        """Whether the first length that does not fit was never tried."""
        return self.cause in PREDICTED


@dataclass(frozen=True, kw_only=True)
class Unmeasured:
    """Cases that were not measured in full, for one reason."""

    outcome: str
    cause: str
    cases: int
    series: tuple[str, ...]
    shortest: int
    longest: int
    reason: str  # in full if it is the same for all, otherwise empty


@dataclass(frozen=True, kw_only=True)
class Answers:
    """All answers of a sweep. Without intervals, which needs two rounds, no time is compared."""

    cases: int
    timed: int
    series: tuple[str, ...]
    intervals: bool
    fastest: tuple[Span, ...]
    smallest: tuple[Span, ...]  # in peak memory
    lightest: tuple[Span, ...]  # in the state that decoding keeps
    baseline: str | None
    against: tuple[Against, ...]
    limits: tuple[Limit, ...]
    missing: tuple[Unmeasured, ...]


def answers(
    cases: pd.DataFrame,
    standings: Standings,
    baseline: str | None,
    crossovers: pd.DataFrame,
    speedups: pd.DataFrame | None,
    departing: Iterable[str] = (),
) -> Answers:
    """The answers of a sweep with this summary.

    `crossovers` are those of times with `baseline`, `speedups` those over it. `departing` are forms
    that compute another function than their mechanism.
    """
    intervals = IntervalKind.ROUNDS in set(cases.loc[cases["time_s"].notna(), "interval_kind"])
    functions = _functions(cases, departing)
    against: tuple[Against, ...] = ()
    if baseline is not None and speedups is not None:
        against = tuple(_against(baseline, crossovers, speedups, functions, intervals))
    return Answers(
        cases=len(cases),
        timed=int(cases["time_s"].notna().sum()),
        series=tuple(map(str, dict.fromkeys(cases["series"]))),
        intervals=intervals,
        fastest=tuple(spans(cases, TIME, standings, functions)),
        smallest=tuple(spans(cases, MEMORY, None, functions)),
        lightest=tuple(spans(cases, STATE, None, functions)),
        baseline=baseline if against else None,
        against=against,
        limits=tuple(_limits(cases)),
        missing=tuple(_missing(cases)),
    )


def _functions(cases: pd.DataFrame, departing: Iterable[str]) -> dict[str, object]:
    """What each series computes: equal for forms of the same mechanism and options."""
    rows = cases.drop_duplicates("series")
    columns = (rows[name] for name in ("series", "mechanism", "options"))
    own = set(departing)
    return {s: s if s in own else (m, options) for s, m, options in zip(*columns, strict=True)}


def _against(
    baseline: str,
    crossovers: pd.DataFrame,
    speedups: pd.DataFrame,
    functions: dict[str, object],
    intervals: bool,
) -> Iterator[Against]:
    """A finding for each mode and series that was timed, if the baseline was timed in that mode."""
    rows = crossovers.to_dict("records")
    found = {(row["mode"], row["series"], row["other"]): row for row in rows}
    for (mode, series, other), row in found.items():
        if other != baseline:
            continue
        back = found[mode, baseline, series]
        finding = _speed(row, back) if intervals else Speed.UNCLEAR
        crossing = back if finding is Speed.SLOWER_FROM else row
        own = speedups[(speedups["series"] == series) & (speedups["mode"] == mode)]
        at, ratio, low, high = 0, math.nan, math.nan, math.nan
        if len(own):
            longest = own.loc[own["seq_len"].idxmax()]
            at, ratio, low, high = (longest[n] for n in ("seq_len", "ratio", "low", "high"))
        else:
            finding = Speed.APART
        yield Against(
            mode=str(mode),
            series=str(series),
            same_function=functions[series] == functions[baseline],
            finding=finding,
            length=float(crossing["length"]),
            low=float(crossing["low"]),
            high=float(crossing["high"]),
            shortest=int(row["from_len"]),
            at=int(at),
            ratio=float(ratio),
            ratio_low=float(low) if intervals else math.nan,
            ratio_high=float(high) if intervals else math.nan,
        )


def _speed(row: dict[Hashable, Any], back: dict[Hashable, Any]) -> Speed:
    """From the crossover of a series over the baseline, and that of the baseline over it."""
    answers = {
        Speed.FASTER: row["answer"] == Crossed.ALWAYS,
        Speed.FASTER_FROM: row["answer"] == Crossed.FROM,
        Speed.SLOWER: back["answer"] == Crossed.ALWAYS,
        Speed.SLOWER_FROM: back["answer"] == Crossed.FROM,
    }
    return next((finding for finding, found in answers.items() if found), Speed.UNCLEAR)


def _limits(cases: pd.DataFrame) -> Iterator[Limit]:
    """Each series that did not fit into memory or the time of a case somewhere."""
    for (mode, series), own in cases.groupby(["mode", "series"], sort=False):
        timed = own.loc[own["time_s"].notna(), "seq_len"]
        lost = own[own["time_s"].isna()].sort_values("seq_len")
        endings = lost["cause"].where(lost["cause"] != "", lost["outcome"])
        limits = endings[endings.isin(IN_MEMORY | IN_TIME)]
        if len(limits):
            yield Limit(
                mode=str(mode),
                series=str(series),
                fits=int(timed.max()) if len(timed) else None,
                stops=int(lost.loc[limits.index[0], "seq_len"]),
                cause=str(limits.iloc[0]),
            )


def _missing(cases: pd.DataFrame) -> Iterator[Unmeasured]:
    """The cases that were not measured in full by their reasons, the most frequent first."""
    lost = cases[cases["outcome"] != Outcome.OK]
    groups = [*lost.groupby(["outcome", "cause"], sort=False)]
    for (outcome, cause), own in sorted(groups, key=lambda group: -len(group[1])):
        yield Unmeasured(
            outcome=str(outcome),
            cause=str(cause),
            cases=len(own),
            series=tuple(map(str, dict.fromkeys(own["series"]))),
            shortest=int(own["seq_len"].min()),
            longest=int(own["seq_len"].max()),
            reason=str(own["reason"].iloc[0]) if own["reason"].nunique() == 1 else "",
        )
