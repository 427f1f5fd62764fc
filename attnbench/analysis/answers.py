"""What a sweep found, as data: the answers with which every report begins."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pandas as pd

from attnbench.analysis.scaling import Crossed
from attnbench.analysis.standings import Place, Standings, comparable, places
from attnbench.errors import UsageError
from attnbench.metrics import MEMORY, STATE, TIME
from attnbench.records import Cause, Outcome
from attnbench.statistics.estimate import IntervalKind

# endings that show or predict the limit of a series; the others say nothing about its length
LIMITS = frozenset({
    *(Outcome.OOM, Cause.OOM, Cause.MEMORY_LIMIT),
    *(Outcome.TIMEOUT, Cause.TIMEOUT, Cause.CASE_TIMEOUT),
})  # fmt: skip


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
    fastest: tuple[Place, ...]
    smallest: tuple[Place, ...]  # in peak memory
    lightest: tuple[Place, ...]  # in the state that decoding keeps
    missing: tuple[Unmeasured, ...]


def answers(
    cases: pd.DataFrame,
    standings: Standings,
    departing: Iterable[str] = (),
    at_length: int | None = None,
) -> Answers:
    """The answers of a sweep with this summary.

    `departing` are forms that compute another function than their mechanism. Raises `UsageError` if
    nothing was timed `at_length`.
    """
    intervals = IntervalKind.ROUNDS in set(cases.loc[cases[TIME].notna(), "interval_kind"])
    functions = _functions(cases, departing)
    return Answers(
        cases=len(cases),
        timed=int(cases[TIME].notna().sum()),
        series=tuple(map(str, dict.fromkeys(cases["series"]))),
        lengths=tuple(sorted(set(map(int, cases["seq_len"])))),
        seq_len=_length(cases, functions, at_length),
        intervals=intervals,
        fastest=tuple(places(cases, TIME, standings, functions)),
        smallest=tuple(places(comparable(cases), MEMORY, None, functions)),
        lightest=tuple(places(cases, STATE, None, functions)),
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
    answers: Answers,
    baseline: str | None,
    speedups: pd.DataFrame | None,
    crossovers: pd.DataFrame,
    exponents: pd.DataFrame,
    decoding: pd.DataFrame,
) -> pd.DataFrame:
    """The rows of a summary at the length of the answers, with what is known of their series.

    Further columns: ratio, ratio_low and ratio_high of `speedups`; the columns of `crossovers` with
    the baseline, whose names end in _ahead where the series is the first, and in _back where the
    baseline is; the exponent of time with low, high and tail; and token_bytes, the growth of the
    state of a sequence, of `decoding`. Without intervals no speed-up has one.
    """
    found = cases[cases["seq_len"] == answers.seq_len]
    if speedups is not None:
        ratios = {"low": "ratio_low", "high": "ratio_high"}
        found = found.merge(speedups.rename(columns=ratios), how="left")
        for mine, other, suffix in (("series", "other", "_ahead"), ("other", "series", "_back")):
            own = crossovers[crossovers[other] == baseline].set_index(["mode", mine])
            found = found.join(own.drop(columns=other).add_suffix(suffix), on=["mode", "series"])
        if not answers.intervals:
            unsure = dict.fromkeys(("answer_ahead", "answer_back"), str(Crossed.UNCLEAR))
            found = found.assign(ratio_low=math.nan, ratio_high=math.nan, **unsure)
    fits = exponents[exponents["metric"] == TIME]
    fits = fits[["series", "mode", "exponent", "low", "high", "tail"]]
    grown = decoding[["series", "mode", "token_bytes"]]
    return found.merge(fits, how="left").merge(grown, how="left")
