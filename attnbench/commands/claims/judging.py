"""How a sweep judges claims, by the 95 % confidence intervals of what it measured.

A claim is reproduced only if the whole interval lies where the claim says, and contradicted only if
all of it lies elsewhere; what only counts show is true of exact counts. Everything else is not
known, with the options of a sweep that would decide it. Costs are per sequence.

Peaks decide nothing where one misses memory, where one is of a prompt and another of a filled
state, or within the tolerance in which they tie. A crossing that was not seen is never reproduced,
nor is the power of a curve of times that bends.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import exp, inf, nan

from attnbench.analysis import (
    Analysis,
    Answer,
    Basis,
    Conclusion,
    Frame,
    IntervalKind,
    Question,
    Scope,
    Value,
)
from attnbench.analysis.concluding import LENGTHS, ModePlan, basis, direction
from attnbench.analysis.conclusions import FEWEST
from attnbench.analysis.scaling import FEWEST as FEWEST_OF_A_SLOPE
from attnbench.analysis.scaling import Tail, scaling
from attnbench.analysis.statistics.curves import LogCurve, cost_curve
from attnbench.commands.claims.claim import Check, Claim, Range
from attnbench.records import PASSES, Selection, metrics, units
from attnbench.report import grid, phrases

# of the answers to the checks of a claim the last of these decides
ORDER = (Answer.REPRODUCED, Answer.COUNTED, Answer.NOT_KNOWN, Answer.CONTRADICTED)
FILLED = "a filled state lacks the peak of a prompt"


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The conclusion on a claim, and those on its checks in each mode, of each pair of series.

    The scope of the conclusion are the lengths that the checks which decide it have in common.
    """

    conclusion: Conclusion
    checks: tuple[Conclusion, ...]

    @property
    def deciding(self) -> tuple[Conclusion, ...]:
        """The conclusions on the checks that have the answer of the claim."""
        return tuple(one for one in self.checks if one.answer is self.conclusion.answer)


def judge_claim(analysis: Analysis, claim: Claim) -> Judgement:
    """All checks of the claim, each in every mode that it is about, must hold."""
    conclusions = tuple(one for check in claim.checks for one in _conclusions(analysis, check))
    answer = max((one.answer for one in conclusions), key=ORDER.index)
    deciding = [one for one in conclusions if one.answer is answer]
    reasons = [*dict.fromkeys(one.reason for one in deciding)]
    more = f"; and {len(reasons) - 1} more" if len(reasons) > 1 else ""
    first = deciding[0]
    common = set.intersection(*({*one.scope.lengths} for one in deciding))
    every = {n for one in deciding for n in one.scope.of_sweep}
    conclusion = replace(
        first,
        mode=" and ".join(dict.fromkeys(one.mode for one in deciding)),
        scope=replace(first.scope, lengths=tuple(sorted(common)), of_sweep=tuple(sorted(every))),
        series=tuple(dict.fromkeys(name for one in deciding for name in one.series)),
        against=tuple(dict.fromkeys(name for one in deciding for name in one.against)),
        missing=tuple(sorted({n for one in deciding for n in one.missing})),
        reason=reasons[0] + more,
        decided_by=next(filter(None, (one.decided_by for one in deciding)), ""),
    )
    return Judgement(conclusion=conclusion, checks=conclusions)


@dataclass(frozen=True, kw_only=True)
class ClaimCheck:
    """What a check asks of series A, over B unless it is about A alone, in one mode of a sweep."""

    check: Check
    plan: ModePlan
    a: str
    b: str = ""

    @property
    def label(self) -> str:
        """What the number behind an answer is called."""
        metric = metrics.TABLE[self.check.quantity]
        name = metric.title or metric.label
        mode = self.plan.mode
        if self.check.predicate == "exponent":
            return f"power of N in {name} of {self.a}, {mode}"
        return f"{name} of {self.a} over {self.b}, {mode}"

    def concluded(
        self,
        answer: Answer,
        evidence: str,
        lengths: Iterable[int] = (),
        value: Value | None = None,
        missing: Iterable[int] = (),
        decided_by: str = "",
    ) -> Conclusion:
        """The conclusion with this answer; its evidence follows the label.

        lengths: at which all that it speaks of was measured.
        value: the number that was held against the claim, if there is one.
        missing: planned lengths of the claim at which it was not measured.
        decided_by: options of a sweep that would decide what is not known.
        """
        return Conclusion(
            question=Question.CLAIM,
            answer=answer,
            mode=self.plan.mode,
            scope=self.plan.scope(lengths),
            basis=basis(self.check.quantity),
            series=(self.a,),
            against=(self.b,) if self.b else (),
            value=value or Value(),
            quantity=self.check.quantity,
            missing=tuple(missing),
            reason=f"{self.label}{evidence}",
            decided_by=decided_by if answer is Answer.NOT_KNOWN else "",
        )

    def reaching(self, fewest: int, meant: Range, measured: Iterable[int]) -> tuple[list[int], str]:
        """The planned lengths that a claim needs and that are not known, and what measures them.

        `fewest` lengths that are `meant` are needed; these options are empty where none helps.
        """
        planned = meant.among([n for n in self.plan.lengths if self._is_planned(n)])
        lost = [n for n in planned if n not in {*measured}]
        names = [name for name in (self.a, self.b) if name]
        endings = [self.plan.endings[name, n] for n in lost for name in names]
        if len(planned) >= fewest and (option := self.plan.reaching(endings)):
            return lost, option
        return lost, "" if len(planned) >= fewest else _lengths(meant)

    def _is_planned(self, seq_len: int) -> bool:
        names = (name for name in (self.a, self.b) if name)
        return all((name, seq_len) in self.plan.endings for name in names)


def _lengths(meant: Range) -> str:
    """The option of a sweep at lengths that a claim is about."""
    if meant.low == meant.high or (meant.longest and meant.low > 0):
        return f"--lengths {meant.low:.0f}"
    return LENGTHS


def _conclusions(analysis: Analysis, check: Check) -> Iterator[Conclusion]:
    """What a check finds in each mode that it is about, and for each of several sizes."""
    wanted = [check.mode] if check.mode else [*PASSES]
    modes = [mode for mode in analysis.modes if mode in wanted]
    if not modes:
        mode = wanted[0] if len(wanted) == 1 else "both"
        yield _absent(check, " or ".join(wanted), "no case of this mode", f"--mode {mode}")
    cases = analysis.judged[analysis.judged["mode"].isin(modes[-1:] if check.counted else modes)]
    for _, block in cases.groupby(["mode", "sizes"], sort=False):
        plan = ModePlan(block, analysis.sweep.request)
        every = [(one, series(analysis, one, block)) for one in (*check.a, *check.b)]
        if lost := [str(one) for one, rows in every if rows is None]:
            option = f"--models {','.join(str(one) for one, _ in every)}"
            yield _absent(check, plan.mode, f"not in the sweep: {', '.join(lost)}", option)
        honest = {one: rows for one, rows in every if rows is not None}
        for one, rows in [*honest.items()]:
            if sign := rows["suspect"].iloc[0]:
                name = rows["series"].iloc[0]
                yield _absent(check, plan.mode, f"{name} is suspect and not judged: {sign}", "")
                del honest[one]
        a, b = ([honest[one] for one in side if one in honest] for side in (check.a, check.b))
        yield from _of_block(analysis, check, plan, a, b)


def _of_block(
    analysis: Analysis, check: Check, plan: ModePlan, a: Sequence[Frame], b: Sequence[Frame]
) -> Iterator[Conclusion]:
    """The conclusions in one mode: first what comes closest to refuting that A costs less.

    analysis: of the sweep.
    check: one of a claim.
    plan: the cases of the mode.
    a, b: rows of the summary, those of each series on either side.
    """
    if check.predicate == "exponent":
        for rows in a:
            yield _exponent(ClaimCheck(check=check, plan=plan, a=_name(rows)), rows)
    judged = _crossover if check.predicate == "crossover" else _ratios
    pairs = list[tuple[ClaimCheck, LogCurve]]()
    for x, y in product(a, b):
        question = ClaimCheck(check=check, plan=plan, a=_name(x), b=_name(y))
        curve = _log_ratio(analysis, check, x, y)
        meant = check.lengths.among(curve.whole)
        unlike = {n: why for n, why in _unlike(check, x, y).items() if n in meant}
        yield from _not_compared(question, unlike)
        if unlike:
            curve = curve.at(n for n in meant if n not in unlike)
        if len(curve) or not unlike:
            pairs.append((question, curve))
    for question, curve in sorted(pairs, key=lambda pair: -max(pair[1].high, default=inf)):
        yield from judged(question, curve)


def _name(rows: Frame) -> str:
    """The name of the series of these rows of the summary."""
    return str(rows["series"].iloc[0])


def _unlike(check: Check, a: Frame, b: Frame) -> dict[int, str]:
    """Why the peaks of two series cannot be compared, by length; other quantities always can."""
    if check.quantity != metrics.MEMORY:
        return {}
    filled = [rows.set_index("seq_len")["filled"] for rows in (a, b)]
    common = filled[0].index.intersection(filled[1].index)
    apart = [int(n) for n in common if filled[0][n] != filled[1][n]]
    return {**_missed(a), **_missed(b), **dict.fromkeys(apart, FILLED)}


def _unlike_along(check: Check, cases: Frame) -> dict[int, str]:
    """Why peaks of one series cannot be compared along its lengths, by length.

    Of peaks with a prompt and of filled states those of the longest length count.
    """
    if check.quantity != metrics.MEMORY:
        return {}
    peaks = cases[cases[metrics.MEMORY] > 0].sort_values("seq_len")
    other = peaks[peaks["filled"] != peaks["filled"].iloc[-1]] if len(peaks) else peaks
    return {**_missed(cases), **{int(n): FILLED for n in other["seq_len"]}}


def _missed(cases: Frame) -> dict[int, str]:
    """What peaks of a series miss, by length."""
    missed = cases[cases["uncounted"] != ""]
    name = f"the peak of {_name(cases)}"
    rows = zip(missed["seq_len"], missed["uncounted"], strict=True)
    return {int(n): f"{name} misses {what}" for n, what in rows}


def _not_compared(question: ClaimCheck, reasons: Mapping[int, str]) -> Iterator[Conclusion]:
    """What is not known since peaks cannot be compared, for these reasons by length."""
    for reason in dict.fromkeys(reasons.values()):
        at = sorted(n for n, why in reasons.items() if why == reason)
        where = phrases.in_order(phrases.between(at, question.plan.lengths))
        yield question.concluded(
            Answer.NOT_KNOWN,
            f": not compared at {where}: {reason}",
            missing=at,
            decided_by="--no-fill" if reason == FILLED else "",
        )


def _absent(check: Check, mode: str, reason: str, option: str) -> Conclusion:
    """What a sweep cannot judge, since it has no case of it.

    check: one of a claim.
    mode: in words.
    reason: why it has none.
    option: of a sweep that would have it; empty where none would.
    """
    return Conclusion(
        question=Question.CLAIM,
        answer=Answer.NOT_KNOWN,
        mode=mode,
        scope=Scope(lengths=(), of_sweep=()),
        basis=basis(check.quantity),
        series=(),
        quantity=check.quantity,
        reason=reason,
        decided_by=option,
    )


def series(analysis: Analysis, chosen: Selection, cases: Frame) -> Frame | None:
    """The rows of the series that a claim means: of several the one timed at the most lengths."""
    plan = {planned.case.key: planned.case for planned in analysis.sweep.plan}
    defaults = {card.mechanism: card.options for card in analysis.sweep.cards}.get(chosen.name, {})
    fitting = []
    for _, rows in cases[cases["mechanism"] == chosen.name].groupby("series", sort=False):
        options = {**defaults, **dict(plan[rows["key"].iloc[0]].options)}
        in_form = chosen.form is None or {*rows["form"]} == {chosen.form}
        if in_form and all(options.get(name, ...) == value for name, value in chosen.options):
            fitting.append(rows)
    return max(fitting, key=lambda rows: int(rows[metrics.TIME].count()), default=None)


def _log_ratio(analysis: Analysis, check: Check, a: Frame, b: Frame) -> LogCurve:
    """The logarithms of the costs of A over those of B by length.

    Of a single round the error of times is not known.

    analysis: of the sweep.
    check: with the quantity.
    a, b: rows of the summary, of one series each.
    """
    mode = str(a["mode"].iloc[0])
    x = str(a["series"].iloc[0])
    y = str(b["series"].iloc[0])
    curve = cost_curve(a, check.quantity).minus(cost_curve(b, check.quantity))
    if check.quantity == metrics.TIME:
        curve, _ = analysis.ratios.in_turns(curve, x, y, mode)
        if IntervalKind.ROUNDS not in {*a["interval_kind"], *b["interval_kind"]}:
            curve = replace(curve, errors=nan * curve.errors)
    return curve


def _ratios(question: ClaimCheck, curve: LogCurve) -> Iterator[Conclusion]:
    """The ratio is `value` at each length of the claim."""
    meant = question.check.lengths
    curve = curve.at(meant.among(curve.whole))
    few = meant.longest or meant.low == meant.high
    fewest = 1 if few else FEWEST
    if len(curve) < fewest:
        lost, option = question.reaching(fewest, meant, curve.whole)
        evidence = f": measured at {len(curve)} of these lengths"
        yield question.concluded(
            Answer.NOT_KNOWN, evidence, curve.whole, missing=lost, decided_by=option
        )
    slack = 1 + (metrics.TABLE[question.check.quantity].tolerance or 0.0)
    for n, log, low, high in zip(curve.whole, curve.logs, curve.low, curve.high, strict=True):
        value = Value(point=exp(log), low=exp(low), high=exp(high))
        one = _placed(question, " ", metrics.Unit.RATIO, value, n)
        allowed = replace(value, low=value.low / slack, high=value.high * slack)
        if one.answer is not _answer(question, allowed):
            tie = f"; within {units.percent(slack - 1)} of the limit, as which peaks tie"
            one = replace(one, answer=Answer.NOT_KNOWN, reason=f"{one.reason}{tie}")
        yield one


def _exponent(question: ClaimCheck, cases: Frame) -> Conclusion:
    """The cost grows as N to the power of `value`, at the longest lengths.

    Of a single round the error of times is not known. A power contradicts a claim only if that of
    both ends does, since a curve may bend without showing it.
    """
    cost = question.check.quantity
    is_exact = basis(cost) is not Basis.MEASURED
    unlike = _unlike_along(question.check, cases)
    alike = cases[~cases["seq_len"].isin([*unlike])]
    row = scaling(alike, (cost,)).iloc[0] if len(alike) else None
    measured = [*map(int, alike.loc[alike[cost] > 0, "seq_len"])]
    lost, option = question.reaching(FEWEST_OF_A_SLOPE, Range(), measured)
    if row is None or row["tail"] == Tail.SHORT:
        reasons = "; ".join([Tail.SHORT, *dict.fromkeys(unlike.values())])
        option = option or ("--no-fill" if FILLED in unlike.values() else "")
        return question.concluded(
            Answer.NOT_KNOWN, f": {reasons}", measured, missing=lost, decided_by=option
        )
    at = sorted(n for n in measured if row["from_len"] <= n <= row["to_len"])
    repeated = is_exact or IntervalKind.ROUNDS in {*cases["interval_kind"]}
    low, high = (row["low"], row["high"]) if repeated else (nan, nan)
    value = Value(point=row["exponent"], low=low, high=high)
    one = _placed(question, " ", metrics.Unit.EXPONENT, value, *at)
    holds = one.answer in (Answer.REPRODUCED, Answer.COUNTED)
    if row["tail"] == Tail.BENDING and not (is_exact and holds):
        return question.concluded(Answer.NOT_KNOWN, f": {row['tail']}", at, value, lost, option)
    ends = Value(low=row["least"], high=row["most"])
    if one.answer is Answer.CONTRADICTED and _answer(question, ends) is not one.answer:
        first, last = (grid.quantity(end, metrics.Unit.EXPONENT) for end in (ends.low, ends.high))
        may = f"; if it bends, {first} to {last} at its ends"
        option = question.plan.repeating() if not is_exact else ""
        return replace(one, answer=Answer.NOT_KNOWN, reason=f"{one.reason}{may}", decided_by=option)
    return one


def _crossover(question: ClaimCheck, curve: LogCurve) -> Iterator[Conclusion]:
    """The length from which the ratio is above 1, for good, is `value`.

    That it is, needs `FEWEST` lengths; that it is not at the longest is seen there. What was not
    seen to cross may never do so.
    """
    at = curve.whole
    over = replace(curve, logs=-curve.logs)  # of B over A
    answer, length = direction(over, question.plan.scope(at))
    lost, option = question.reaching(FEWEST, Range(), at)
    match answer:
        case Answer.FROM:
            low = length.low if length.low > 0 else 0.0  # it may begin before
            point = length.point if length.point > 0 else length.high
            introduction = ": above 1 from "
            ends = Value(point=point, low=low, high=length.high)
        case Answer.ALL | Answer.FASTER_AT:
            introduction = ": above 1 already at "
            ends = Value(point=at[0], low=0.0, high=at[0])
        case Answer.NOT_KNOWN:
            evidence = ": cannot tell from which length above 1"
            option = question.plan.repeating() if at else option
            yield question.concluded(answer, evidence, at, missing=lost, decided_by=option)
            return
        case Answer.UP_TO | Answer.SLOWER_FROM:
            introduction = f": not above 1 from {units.count(round(length.high))} up to "
            ends = Value(point=at[-1], low=at[-1], high=inf)
        case _:
            introduction = ": not above 1 up to "
            ends = Value(point=at[-1], low=at[-1], high=inf)
    conclusion = _placed(question, introduction, metrics.Unit.COUNT, ends, *at)
    may_never = ends.high == inf and conclusion.answer is Answer.REPRODUCED
    few = len(at) < FEWEST and ends.high < inf
    if conclusion.answer is Answer.NOT_KNOWN or may_never or few:
        beyond = f"--lengths {at[0]}..{2 * at[-1]}:x2" if ends.high == inf and not lost else ""
        option = option or beyond
        yield question.concluded(
            Answer.NOT_KNOWN, conclusion.reason.removeprefix(question.label), at, ends, lost, option
        )
    else:
        yield conclusion


def _placed(
    question: ClaimCheck, introduction: str, unit: metrics.Unit, value: Value, *at: int
) -> Conclusion:
    """Whether a number with its interval lies where a claim says.

    question: the check, of which series in which mode.
    introduction: the words before the number.
    unit: of the number.
    value: the number with its interval.
    at: the lengths that it holds at, in order.
    """
    text = grid.quantity(value.point, unit)
    if 0 < value.low < value.high < inf:
        low, high = (grid.quantity(end, unit).removesuffix("×") for end in (value.low, value.high))
        text = units.interval(text, low, high)
    if unit is not metrics.Unit.COUNT:
        text += f" at {units.between(at[0], at[-1])}"
    is_measured = basis(question.check.quantity) is Basis.MEASURED
    option = question.plan.repeating() if is_measured else ""
    answer = _answer(question, value)
    return question.concluded(answer, f"{introduction}{text}", at, value, decided_by=option)


def _answer(question: ClaimCheck, value: Value) -> Answer:
    """Where the interval of a number lies: as the claim says, elsewhere, or not in one of both."""
    meant = question.check.value
    # exact counts may be equal, and are not less then
    if question.check.predicate == "less" and value.low == value.high == meant.high:
        answer = Answer.CONTRADICTED
    elif meant.low <= value.low and value.high <= meant.high:
        answer = Answer.COUNTED if question.check.counted else Answer.REPRODUCED
    elif value.high < meant.low or value.low > meant.high:
        answer = Answer.CONTRADICTED
    else:
        answer = Answer.NOT_KNOWN
    return answer
