"""What a sweep found, as data: the answers with which every report begins."""

import math
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pandas as pd

from attnbench.analysis.scaling import Crossed
from attnbench.analysis.standings import Span, Standings, spans
from attnbench.errors import UsageError
from attnbench.metrics import MEMORY, STATE, TIME
from attnbench.records import Cause, Outcome
from attnbench.statistics.estimate import IntervalKind

# endings that show or predict the limit of a series; the others say nothing about its length
LIMITS = frozenset({
    *(Outcome.OOM, Cause.OOM, Cause.MEMORY_LIMIT),
    *(Outcome.TIMEOUT, Cause.TIMEOUT, Cause.CASE_TIMEOUT),
})  # fmt: skip


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
    """A finding over all lengths at which a series and the baseline were timed.

    `length`, with its 95 % confidence interval, is the crossover of `FASTER_FROM` and
    `SLOWER_FROM`, otherwise NaN; one at `shortest` may in fact lie before it.
    """

    mode: str
    series: str
    same_function: bool  # another form of the baseline
    finding: Speed
    length: float
    low: float
    high: float
    shortest: int
    longest: int


@dataclass(frozen=True, kw_only=True)
class Unmeasured:
    """The lengths at which a series was not measured in full in one mode, for one reason."""

    mode: str
    series: str
    outcome: str
    cause: str
    lengths: tuple[int, ...]
    reason: str  # at the first of them

    @property
    def is_limit(self) -> bool:
        """Whether memory, or the time of a case, ends the series at the first length."""
        return (self.cause or self.outcome) in LIMITS


@dataclass(frozen=True, kw_only=True)
class Answers:
    """All answers of a sweep. Without intervals, which needs two rounds, no time is compared.

    `seq_len` is the length of the table of answers: the chosen one, or else the longest that all
    mechanisms reached, in some form, in all modes; None if nothing was timed.
    """

    cases: int
    timed: int
    series: tuple[str, ...]
    lengths: tuple[int, ...]  # of the plan
    seq_len: int | None
    intervals: bool
    fastest: tuple[Span, ...]
    smallest: tuple[Span, ...]  # in peak memory
    lightest: tuple[Span, ...]  # in the state that decoding keeps
    baseline: str | None
    against: tuple[Against, ...]
    missing: tuple[Unmeasured, ...]


def answers(
    cases: pd.DataFrame,
    standings: Standings,
    baseline: str | None,
    crossovers: pd.DataFrame,
    departing: Iterable[str] = (),
    at_length: int | None = None,
) -> Answers:
    """The answers of a sweep with this summary.

    `crossovers` are those of times with `baseline`. `departing` are forms that compute another
    function than their mechanism. Raises `UsageError` if nothing was timed `at_length`.
    """
    intervals = IntervalKind.ROUNDS in set(cases.loc[cases[TIME].notna(), "interval_kind"])
    functions = _functions(cases, departing)
    against = tuple(_against(baseline, crossovers, functions, intervals)) if baseline else ()
    return Answers(
        cases=len(cases),
        timed=int(cases[TIME].notna().sum()),
        series=tuple(map(str, dict.fromkeys(cases["series"]))),
        lengths=tuple(sorted(set(map(int, cases["seq_len"])))),
        seq_len=_length(cases, functions, at_length),
        intervals=intervals,
        fastest=tuple(spans(cases, TIME, standings, functions)),
        smallest=tuple(spans(cases, MEMORY, None, functions)),
        lightest=tuple(spans(cases, STATE, None, functions)),
        baseline=baseline if against else None,
        against=against,
        missing=tuple(_missing(cases)),
    )


def _functions(cases: pd.DataFrame, departing: Iterable[str]) -> dict[str, object]:
    """What each series computes: equal for forms of the same mechanism and options."""
    rows = cases.drop_duplicates("series")
    columns = (rows[name] for name in ("series", "mechanism", "options"))
    own = set(departing)
    return {s: s if s in own else (m, options) for s, m, options in zip(*columns, strict=True)}


def _length(cases: pd.DataFrame, functions: dict[str, object], chosen: int | None) -> int | None:
    """The chosen length, or the longest of those that the most functions and modes reached."""
    timed = cases[cases[TIME] > 0]
    reached: dict[int, set[tuple[str, object]]] = {}
    for n, mode, series in zip(timed["seq_len"], timed["mode"], timed["series"], strict=True):
        reached.setdefault(int(n), set()).add((mode, functions[series]))
    if chosen is not None and chosen not in reached:
        known = ", ".join(map(str, sorted(reached))) or "none"
        raise UsageError(f"no time was measured at a length of {chosen}; measured: {known}")
    return chosen or max(reached, key=lambda n: (len(reached[n]), n), default=None)


def _against(
    baseline: str, crossovers: pd.DataFrame, functions: dict[str, object], intervals: bool
) -> Iterator[Against]:
    """A finding for each mode and series that was timed, if the baseline was timed in that mode."""
    rows = crossovers.to_dict("records")
    found = {(row["mode"], row["series"], row["other"]): row for row in rows}
    for (mode, series, other), row in found.items():
        if other == baseline:
            back = found[mode, baseline, series]
            finding = _speed(row, back) if intervals else Speed.UNCLEAR
            crossing = back if finding is Speed.SLOWER_FROM else row
            yield Against(
                mode=str(mode),
                series=str(series),
                same_function=functions[series] == functions[baseline],
                finding=finding if row["to_len"] else Speed.APART,
                length=float(crossing["length"]),
                low=float(crossing["low"]),
                high=float(crossing["high"]),
                shortest=int(row["from_len"]),
                longest=int(row["to_len"]),
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


def _missing(cases: pd.DataFrame) -> Iterator[Unmeasured]:
    """What was not measured in full, in the order of the plan."""
    lost = cases[cases["outcome"] != Outcome.OK].sort_values("seq_len", kind="stable")
    for series, mode in dict.fromkeys(zip(cases["series"], cases["mode"], strict=True)):
        of_mode = lost[(lost["series"] == series) & (lost["mode"] == mode)]
        for (outcome, cause), own in of_mode.groupby(["outcome", "cause"], sort=False):
            yield Unmeasured(
                mode=str(mode),
                series=str(series),
                outcome=str(outcome),
                cause=str(cause),
                lengths=tuple(map(int, own["seq_len"])),
                reason=str(own["reason"].iloc[0]),
            )


def rows(
    cases: pd.DataFrame,
    seq_len: int | None,
    speedups: pd.DataFrame | None,
    exponents: pd.DataFrame,
    decoding: pd.DataFrame,
) -> pd.DataFrame:
    """The rows of a summary at one length, one per series and mode, with what is known of them.

    Further columns: ratio, ratio_low and ratio_high of `speedups`, the exponent of time with low,
    high and tail, and token_bytes, the growth of the state of a sequence, of `decoding`.
    """
    ratios = {"ratio": "ratio", "low": "ratio_low", "high": "ratio_high"}
    found = cases[cases["seq_len"] == seq_len]
    if speedups is None:
        found = found.assign(**dict.fromkeys(ratios.values(), math.nan))
    else:
        pairs = speedups.rename(columns=ratios)
        found = found.merge(pairs, on=["series", "mode", "seq_len"], how="left")
    fits = exponents[exponents["metric"] == TIME]
    fits = fits[["series", "mode", "exponent", "low", "high", "tail"]]
    grown = decoding[["series", "mode", "token_bytes"]]
    return found.merge(fits, how="left").merge(grown, how="left")
