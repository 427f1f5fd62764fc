"""How conclusions follow from the numbers of a sweep, question by question.

A series is *faster* at a length where the whole 95 % interval of its time over the other's lies
below 1, and *slower* where all of it lies above. Where it begins, or ceases, to be faster was not
measured: it lies between the last length at which it is shown to be on one side, and the first
from which on it is shown to be on the other. These two are the interval of that length; the point
between them is interpolated in log N. Where one side is not shown at any length, only the other
end is known.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from attnbench.analysis.answers import Answers, UnmeasuredLengths
from attnbench.analysis.conclusions import (
    FEWEST,
    Answer,
    Basis,
    Conclusion,
    Expected,
    LeftOut,
    Question,
    Scope,
    Value,
    about,
)
from attnbench.analysis.scaling import Pair, Tail
from attnbench.analysis.standings import Winner, counted_in_full
from attnbench.analysis.statistics.curves import LogCurve
from attnbench.records import LEAST_ROUNDS, MISSING, Cause, Outcome, Request, metrics, modes

# the cost that is least of the cheapest
COST: Mapping[Question, str] = MappingProxyType({
    Question.FASTEST: metrics.TIME,
    Question.LEAST_MEMORY: metrics.MEMORY,
    Question.SMALLEST_STATE: metrics.STATE,
})  # fmt: skip

# outcomes of code that does not work; memory and time are limits of the machine
BROKEN = (Outcome.FAILED, Outcome.CRASHED)

# of a case that has no cost, why it cannot have one on this machine
CANNOT = frozenset({
    *(Outcome.UNSUPPORTED, Outcome.FAILED, Outcome.CRASHED, Outcome.OOM),
    *(Cause.OOM, Cause.MEMORY_LIMIT),
})  # fmt: skip

LENGTHS = "--lengths 128..65536:x2"  # enough of them for any question


@dataclass(frozen=True)
class ModePlan:
    """What a sweep planned in one mode and with equal sizes: `cases` are rows of its summary."""

    cases: pd.DataFrame
    request: Request

    @property
    def mode(self) -> str:
        """The mode of all cases."""
        return str(self.cases["mode"].iloc[0])

    @property
    def sizes(self) -> str:
        """The sizes in the names of the series, where the sweep crosses sizes."""
        return str(self.cases["sizes"].iloc[0])

    @property
    def series(self) -> tuple[str, ...]:
        """The series, in the order of the sweep."""
        return tuple(map(str, dict.fromkeys(self.cases["series"])))

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """All lengths, from the shortest."""
        return tuple(sorted({*map(int, self.cases["seq_len"])}))

    @cached_property
    def endings(self) -> Mapping[tuple[str, int], str]:
        """The cause, or else the outcome, of the case of each series at each length."""
        rows = self.cases
        why = rows["cause"].where(rows["cause"] != "", rows["outcome"])
        return dict(zip(zip(rows["series"], rows["seq_len"], strict=True), why, strict=True))

    def failing(self, seq_len: int) -> frozenset[str]:
        """The series that failed at a shorter length, beyond which nothing of them was timed."""
        shorter = self.cases[self.cases["seq_len"] < seq_len].sort_values("seq_len")
        tried = shorter[shorter["outcome"].isin([Outcome.OK, *BROKEN])].groupby("series")["outcome"]
        return frozenset(str(series) for series, last in tried.last().items() if last in BROKEN)

    def scope(self, lengths: Iterable[int]) -> Scope:
        """The scope of what was measured at these lengths."""
        return Scope(
            lengths=tuple(sorted(lengths)),
            of_sweep=self.lengths,
            sizes=self.sizes,
            step=int(self.cases["step"].iloc[0]),
        )

    def at(self, seq_len: int) -> pd.DataFrame:
        """The cases at a length, of series that do their work."""
        rows = self.cases
        return rows[(rows["seq_len"] == seq_len) & (rows["suspect"] == "")]

    def repeating(self) -> str:
        """The option that repeats measurements more often."""
        rounds = max(LEAST_ROUNDS, 2 * self.request.rounds)
        return self.reaching({Cause.BUDGET}) if self.request.budget_s else f"--rounds {rounds}"

    def reaching(self, endings: Iterable[str]) -> str:
        """The option with which cases that ended so are measured; empty if there is none."""
        left = {*endings}
        if left & {Cause.BUDGET, MISSING}:
            return longer("--budget", self.request.budget_s) or "--resume"
        if Cause.OVERTIME in left:
            return "--resume"
        if left & {Cause.CASE_TIMEOUT, Cause.TIMEOUT, Outcome.TIMEOUT}:
            return longer("--case-timeout", self.request.case_timeout_s)
        return ""


def longer(option: str, seconds: float | None) -> str:
    """`--budget 10m` for 300 s: the option with twice the time; empty where there is no limit."""
    if seconds is None:
        return ""
    minutes, rest = divmod(2 * seconds, 60)
    return f"{option} {2 * seconds:g}s" if rest else f"{option} {minutes:g}m"


def plans(cases: pd.DataFrame, request: Request) -> list[ModePlan]:
    """The plans of each mode and sizes, in the order of the sweep."""
    groups = cases.groupby(["mode", "sizes"], sort=False)
    return [ModePlan(block, request) for _, block in groups]


def conclusions(
    plans: Sequence[ModePlan],
    answers: Answers,
    pairs: Iterable[Pair],
    fits: pd.DataFrame,
) -> Iterator[Conclusion]:
    """All conclusions of a sweep, question by question.

    answers: with the winners at each length, and what was not measured.
    pairs: each pair of series that are ranked, once (`scaling.pairs`).
    fits: the exponents (`scaling.scaling`).
    """
    winners = {
        Question.FASTEST: answers.fastest,
        Question.SMALLEST_STATE: answers.least_state,
        Question.LEAST_MEMORY: answers.least_memory,
    }
    for question, every in winners.items():
        for plan in plans:
            if question is not Question.SMALLEST_STATE or modes.find(plan.mode).steps:
                of_plan = (w for w in every if (w.mode, w.sizes) == (plan.mode, plan.sizes))
                yield from cheapest(question, plan, of_plan)
    by_names = {(plan.mode, series): plan for plan in plans for series in plan.series}
    for pair in pairs:
        plan = by_names[pair.mode, pair.a]
        yield faster_from(plan, pair)
        yield faster_from(plan, pair.turned())
    yield from limits(plans, answers.missing)
    yield from exponents(plans, fits)


def cheapest(question: Question, plan: ModePlan, winners: Iterable[Winner]) -> Iterator[Conclusion]:
    """Which series costs least at each length of the plan, the shortest first.

    `winners` are those of the plan's mode and sizes. A length without one has nothing that can be
    compared.
    """
    by_length = {winner.seq_len: winner for winner in winners}
    for seq_len in plan.lengths:
        rows = plan.at(seq_len)
        if question is Question.LEAST_MEMORY:
            rows = counted_in_full(rows)
        if winner := by_length.get(seq_len):
            yield _led(question, plan, winner, rows)
        elif len(rows):
            unlike = question is Question.LEAST_MEMORY and rows["filled"].nunique() > 1
            missing = [plan.endings[series, seq_len] for series in rows["series"]]
            yield Conclusion(
                question=question,
                answer=Answer.NOT_KNOWN,
                mode=plan.mode,
                scope=plan.scope(()),
                basis=basis(COST[question]),
                series=(),
                quantity=COST[question],
                left_out=tuple(left_out(rows, COST[question])),
                decided_by="--no-fill" if unlike else plan.reaching(missing),
            )


def _led(question: Question, plan: ModePlan, winner: Winner, rows: pd.DataFrame) -> Conclusion:
    """Who leads at a length, among what was measured there.

    question: of a winner.
    plan: of the mode and its sizes.
    winner: the cheapest, with its ties.
    rows: all cases at the length.
    """
    cost = COST[question]
    measured = rows[rows[cost] > 0].set_index("series")[cost]
    series = (winner.first, *(tie.series for tie in winner.ties))
    least = float(measured[winner.first])
    lost = [*left_out(rows, cost, least, plan.failing(winner.seq_len))]
    if winner.measured == 1:
        answer = Answer.ALONE
    elif winner.unsure:
        answer = Answer.NOT_KNOWN
    else:
        answer = Answer.TIE if winner.ties else Answer.WINNER
    if answer is Answer.NOT_KNOWN:
        decided_by = plan.repeating()
    else:
        decided_by = plan.reaching(plan.endings[each.series, winner.seq_len] for each in lost)
    rival = winner.runner_up
    margin = Value() if rival is None else Value(
        point=rival.margin.factor, low=rival.margin.low, high=rival.margin.high
    )  # fmt: skip
    return Conclusion(
        question=question,
        answer=answer,
        mode=plan.mode,
        scope=plan.scope([winner.seq_len]),
        basis=basis(cost),
        series=series,
        against=tuple(name for name in map(str, measured.index) if name not in series),
        value=margin,
        quantity=cost,
        rival="" if rival is None else rival.series,
        left_out=tuple(lost),
        decided_by=decided_by,
    )


def left_out(
    rows: pd.DataFrame, cost: str, least: float = np.nan, failing: Collection[str] = ()
) -> Iterator[LeftOut]:
    """The series of a length that lack a cost and could have one.

    rows:    the cases of that length
    cost:    the column of the cost
    least:   the least that was measured there; NaN: nothing was
    failing: series that failed before: what they would need if they ran is not known
    """
    columns = ["series", "outcome", "cause", metrics.PREDICTED.get(cost, "")]
    lost = rows[~(rows[cost] > 0)].reindex(columns=columns)
    for series, outcome, cause, predicted in lost.itertuples(index=False):
        if {outcome, cause} & CANNOT:
            continue
        over = float(predicted / least)
        if np.isnan(over) or series in failing:
            over = np.nan
            expected = Expected.UNKNOWN
        else:
            expected = Expected.LESS if over < 1 else Expected.MORE
        yield LeftOut(series=str(series), expected=expected, over=over)


def basis(quantity: str) -> Basis:
    """What the numbers of a metric are."""
    return Basis.MEASURED if metrics.TABLE[quantity].interval else Basis.COUNTED


def faster_from(plan: ModePlan, pair: Pair) -> Conclusion:
    """At which lengths the first series of a pair is faster than the second."""
    both = pair.curve.whole
    scope = plan.scope(both)
    answer, value = direction(pair.curve, scope)
    lost = [
        plan.endings[series, n]
        for n in plan.lengths
        for series in (pair.a, pair.b)
        if n not in both and (series, n) in plan.endings
    ]
    if answer is Answer.NOT_KNOWN and both:
        decided_by = plan.repeating()
    elif len(plan.lengths) < FEWEST:
        decided_by = LENGTHS
    else:
        decided_by = plan.reaching(lost)
    return Conclusion(
        question=Question.FASTER_FROM,
        answer=answer,
        mode=plan.mode,
        scope=scope,
        basis=Basis.MEASURED,
        series=(pair.a,),
        against=(pair.b,),
        value=value,
        quantity=metrics.TIME,
        decided_by=decided_by,
    )


def direction(log_ratio: LogCurve, scope: Scope) -> tuple[Answer, Value]:
    """The answer to *faster from*, and its length; `log_ratio` is of times at all of the scope.

    Without intervals, and where neither is shown to be faster at the longest length, the answer is
    not known.
    """
    faster = log_ratio.high < 0
    slower = log_ratio.low > 0
    if not len(log_ratio) or not (faster[-1] or slower[-1]):
        return Answer.NOT_KNOWN, Value()
    if faster.all():
        return Answer.ALL if scope.spans else Answer.FASTER_AT, Value()
    if slower.all():
        return Answer.NEVER if scope.spans else Answer.SLOWER_AT, Value()
    ends, before = (faster, slower) if faster[-1] else (slower, faster)
    last = int(np.flatnonzero(~ends)[-1])  # the last length at which the final side is not shown
    shown = np.flatnonzero(before[: last + 1])
    value = Value(high=float(log_ratio.lengths[last + 1]))
    if len(shown):
        first = int(shown[-1])
        low = float(log_ratio.lengths[first])
        value = Value(point=_zero(log_ratio[first : last + 2]), low=low, high=value.high)
    if faster[-1]:
        return Answer.FROM, value
    # it is said of all lengths up to there
    always_before = len(shown) and before[: shown[-1] + 1].all()
    if always_before:
        return Answer.UP_TO, value
    return Answer.SLOWER_FROM, Value(high=value.high)


def _zero(log_ratio: LogCurve) -> float:
    """Where a log ratio, of which the first and last have different signs, last crosses zero."""
    logs = log_ratio.logs
    x = log_ratio.lengths
    i = int(np.flatnonzero(np.sign(logs[:-1]) != np.sign(logs[-1]))[-1])
    share = logs[i] / (logs[i] - logs[i + 1])
    # by powers, since the exponential of the logarithm of 128 is 127.99999999999996
    return float(x[i] * (x[i + 1] / x[i]) ** share)


def limits(plans: Sequence[ModePlan], missing: Sequence[UnmeasuredLengths]) -> Iterator[Conclusion]:
    """The length at which each series runs out of memory or time, if it does.

    A series that was timed at a longer length has no limit there.
    """
    for plan in plans:
        for series, rows in plan.cases.groupby("series", sort=False):
            timed = [*map(int, rows.loc[rows[metrics.TIME] > 0, "seq_len"])]
            ends = [
                lost
                for lost in missing
                if (lost.mode, lost.series) == (plan.mode, series) and lost.is_limit
            ]
            for lost in sorted(ends, key=attrgetter("first"))[:1]:
                if max(timed, default=0) < lost.first:
                    yield _limit(plan, lost, timed)


def _limit(plan: ModePlan, lost: UnmeasuredLengths, timed: Sequence[int]) -> Conclusion:
    """The limit of a series that was timed at shorter lengths."""
    tried = lost.outcome != Outcome.SKIPPED
    return Conclusion(
        question=Question.LIMIT,
        answer=Answer.ENDS,
        mode=plan.mode,
        scope=plan.scope(timed),
        basis=Basis.MEASURED if tried else Basis.PREDICTED,
        series=(lost.series,),
        value=Value(point=float(lost.first)),
        reason=lost.cause or lost.outcome,
        decided_by=plan.reaching([lost.cause or lost.outcome]),
    )


def exponents(plans: Sequence[ModePlan], fits: pd.DataFrame) -> Iterator[Conclusion]:
    """With which power of N each cost of each series grows; `fits` are those of `scaling`.

    They are of the cases that are `counted_in_full`.
    """
    for plan in plans:
        counted = counted_in_full(plan.cases)
        names = {*plan.cases["series"]}
        of_plan = fits[(fits["mode"] == plan.mode) & fits["series"].isin(names)]
        for fit in of_plan.to_dict("records"):
            rows = counted[counted["series"] == fit["series"]]
            measured = {*map(int, rows.loc[rows[fit["metric"]] > 0, "seq_len"])}
            yield _exponent(plan, fit, measured)


def _exponent(plan: ModePlan, fit: Mapping[Hashable, Any], measured: Collection[int]) -> Conclusion:
    """The exponent of a series over the tail of its curve; `measured` are its measured lengths."""
    series = str(fit["series"])
    quantity = str(fit["metric"])
    lost = (plan.endings.get((series, n), "") for n in plan.lengths if n not in measured)
    answers = {
        Tail.STRAIGHT: Answer.GROWS,
        Tail.BENDING: Answer.BENDS,
        Tail.SHORT: Answer.NOT_KNOWN,
    }
    answer = answers[Tail(fit["tail"])]
    few = answer is Answer.NOT_KNOWN and len(plan.lengths) <= FEWEST
    return Conclusion(
        question=Question.EXPONENT,
        answer=answer,
        mode=plan.mode,
        scope=plan.scope(n for n in measured if fit["from_len"] <= n <= fit["to_len"]),
        basis=basis(quantity),
        series=(series,),
        value=Value(point=fit["exponent"], low=fit["low"], high=fit["high"]),
        quantity=quantity,
        decided_by=LENGTHS if few else plan.reaching(lost),
    )


def crossovers(conclusions: Iterable[Conclusion]) -> pd.DataFrame:
    """The conclusions on *faster from*, a row for each mode and ordered pair of series.

    Columns: mode, series, other, answer (an `Answer`), length with its interval low to high, NaN
    where unknown, from_len and to_len (of the lengths at which both were timed, 0 if there are
    none), lengths (their number), decided_by.
    """
    rows = [
        (
            *(each.mode, each.series[0], each.against[0], str(each.answer)),
            *(each.value.point, each.value.low, each.value.high),
            *(each.scope.lengths[:1] or (0,)),
            *(each.scope.lengths[-1:] or (0,)),
            *(len(each.scope.lengths), each.decided_by),
        )
        for each in about(conclusions, Question.FASTER_FROM)
    ]
    columns = "mode series other answer length low high from_len to_len lengths decided_by"
    return pd.DataFrame(rows, columns=columns.split())
