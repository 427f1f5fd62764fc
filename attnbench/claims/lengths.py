"""Predicates along the lengths of a series: growth, crossovers, memory limits and throughput.

Only the length varies within a sweep, so of a formula such as N*K*d the part in N is judged: every
other symbol is a constant. FLOPs are exact, those of the cards as stored with the sweep, of the
core alone and of one layer and sequence.

Memory limits depend on the machine and on the tokens of a batch. `oom` and `fits` are judged on any
machine, since they claim which mechanism stops first. Absolute lengths and rates are judged only on
the device of the claim.
"""

from dataclasses import replace
from math import log

import numpy as np
from numpy.typing import NDArray

from attnbench.analysis.scaling import BEND, FEWEST, Crossed, Crossing, find_crossing
from attnbench.claims.bench import Bench, CostCurve
from attnbench.claims.claim import (
    EVERYWHERE,
    NEAR,
    Answer,
    Bracket,
    ClaimedCost,
    ClaimedSeries,
    Exactly,
    Formula,
    Judgement,
    Measured,
    Number,
    OutOfScope,
    Sign,
    nearest,
)
from attnbench.claims.costs import compare_curves
from attnbench.metrics import Unit
from attnbench.records import Causality, Level, Mode
from attnbench.statistics.curves import LogCurve

# a slope still approaches an order if its last error is at most this share of its first
NEARER = 0.75


def crossover(
    bench: Bench, a: ClaimedSeries, b: ClaimedSeries, mode: Mode, *, relation: Bracket
) -> Judgement:
    """The length from which B takes less time than A, for good, interpolated in log–log.

    `x <= crossover(…) <= y`: A is faster at x and B at y; reproduced if the confidence interval of
    the crossing lies between them. `<= x`: B is faster from x on; reproduced if the interval ends
    by x, or if B is faster at every length measured, one of which is at most x. `== x`: within a
    factor of 2. A sweep that ends before x, or begins beyond y, is out of scope.
    """
    curve_a, curve_b = bench.curve(a, mode), bench.curve(b, mode)
    measured = compare_curves(curve_b, curve_a, ClaimedCost.TIME, EVERYWHERE)
    first, last = measured.lengths[0], measured.lengths[-1]
    low, high = relation.bounds
    least = max(low, high if relation.sign is Sign.AT_MOST else 0)
    if last < least / NEAR or first > high * NEAR:
        raise OutOfScope(f"no length near {relation}: both measured from {first:,} to {last:,}")
    crossing = find_crossing(measured.logs)
    answer, why = _crossed(crossing, first, last, low, high)
    number = Number(
        what=f"length from which {curve_b.series} is faster than {curve_a.series}, {mode}",
        unit=Unit.COUNT,
        value=crossing.length,
        low=crossing.low,
        high=crossing.high,
    )
    # without a crossing the ratios at both ends show which is faster throughout
    ends = measured.numbers[:: max(1, len(measured.lengths) - 1)]
    numbers = (number,) if crossing.answer is Crossed.FROM else ends
    return Judgement(answer=answer, why=why, numbers=numbers, lengths=measured.lengths)


def order(
    bench: Bench, a: ClaimedSeries, quantity: ClaimedCost, *, mode: Mode, formula: Formula
) -> Judgement:
    """The cost grows like the formula, over the last four lengths that ran in one form.

    The terms of the formula are fitted with non-negative factors. Reproduced if every slope between
    neighbouring lengths agrees with the fit within 0.1 and the leading term contributes; not
    reproduced if one differs by more and does not come closer. A formula without N is out of scope.
    """
    if not any(map(any, formula.terms)):
        raise OutOfScope(f"a sweep varies only N, and {formula.text} does not contain it")
    curve = bench.curve(a, mode)
    logs = _tail(curve, quantity)
    if len(logs) < 2:
        raise OutOfScope(f"{curve.series} has no {quantity} at two lengths")
    slopes = logs.slopes()
    counted = quantity in (ClaimedCost.CORE_FLOPS, ClaimedCost.PROJECTION_FLOPS, ClaimedCost.STATE)
    number = Number(
        what=f"exponent of N of {quantity} of {curve.series}" + ("" if counted else f", {mode}"),
        unit=Unit.EXPONENT,
        value=float(np.ptp(logs.logs) / np.ptp(np.log(logs.lengths))),
        low=float(slopes.low.min()),
        high=float(slopes.high.max()),
    )
    answer, why = _ordered(logs, slopes, formula)
    return Judgement(answer=answer, why=why, numbers=(number,), lengths=tuple(logs.whole))


def projections_over_core(bench: Bench, a: ClaimedSeries, *, mode: Mode) -> Measured:
    """FLOPs of the linear projections over FLOPs of the core, exact; the minimum over lengths."""
    curve = bench.curve(a, mode)
    logs = curve.costs[ClaimedCost.PROJECTION_FLOPS].minus(curve.costs[ClaimedCost.CORE_FLOPS])
    if not len(logs):
        raise OutOfScope(f"{curve.series} has no FLOPs of projections and core")
    label = f"FLOPs of the projections over those of the core of {curve.series}"
    least = logs[[int(np.argmin(logs.logs))]]
    return Measured(label=label, logs=least, lengths=tuple(logs.whole))


def oom(bench: Bench, a: ClaimedSeries, mode: Mode, length: int) -> Judgement:
    """A runs out of memory, or is predicted to, at that length or a shorter one.

    Not reproduced if A was measured at that length; otherwise the answer is "cannot tell".
    """
    curve = bench.curve(a, mode)
    return _limit(curve, length, lost=Answer.REPRODUCED, fits=Answer.NOT_REPRODUCED)


def fits(bench: Bench, a: ClaimedSeries, mode: Mode, length: int) -> Judgement:
    """A was measured at the length; not reproduced if it ran out of memory there or before."""
    curve = bench.curve(a, mode)
    return _limit(curve, length, lost=Answer.NOT_REPRODUCED, fits=Answer.REPRODUCED)


def max_length(bench: Bench, a: ClaimedSeries, mode: Mode, *, relation: Exactly) -> Judgement:
    """The longest length that fits is the claim's: A was measured there and ran out at the next.

    Not reproduced if A was measured beyond, or ran out of memory at it or before; otherwise the
    answer is "cannot tell". Judged only on the device of the claim.
    """
    curve, limit = bench.curve(a, mode), relation.values[0]
    longest, lost = max(curve.fitting, default=0), min(curve.lost, default=0)
    if longest > limit * NEAR:
        return _judgement(curve, Answer.NOT_REPRODUCED, f"fits at {longest:,}")
    if lost and lost <= limit * NEAR:
        return _judgement(curve, Answer.NOT_REPRODUCED, f"out of memory at {lost:,}")
    if lost and nearest(limit, curve.fitting) is not None:
        return _judgement(curve, Answer.REPRODUCED, f"out of memory from {lost:,}")
    why = "the length where memory runs out was not measured"
    return _judgement(curve, Answer.CANNOT_TELL, why)


def throughput(bench: Bench, a: ClaimedSeries, mode: Mode) -> Measured:
    """The highest rate of the core over all lengths, in TFLOP/s: forward, at level core.

    Judged only on the device of the claim; at other levels further work is timed too.
    """
    if bench.level is not Level.CORE or mode != Mode.INFERENCE:
        raise OutOfScope("a rate is judged at inference, at level core")
    curve = bench.curve(a, mode)
    rates = curve.costs[ClaimedCost.CORE_FLOPS].minus(curve.costs[ClaimedCost.TIME])
    if not len(rates):
        raise OutOfScope(f"{curve.series} was not measured")
    rates = replace(rates, logs=rates.logs - log(1e12))
    best = rates[[int(rates.logs.argmax())]]
    label = f"TFLOP/s of {curve.series} at {best.lengths[0]:,.0f}, {mode}"
    return Measured(label=label, logs=best, lengths=tuple(rates.whole))


def no_causal_form(bench: Bench, a: ClaimedSeries, *, mode: Mode) -> Judgement:
    """The card of A, as stored with the sweep, has no causal form; nothing is measured."""
    card = bench.cards.get(a.mechanism)
    if card is None:
        raise OutOfScope(f"{a.mechanism} is not in the sweep")
    never = card.causality is Causality.NEVER
    answer = Answer.REPRODUCED if never else Answer.NOT_REPRODUCED
    return Judgement(answer=answer, why=f"causal form of {card.mechanism}: {card.causality}")


def _crossed(
    crossing: Crossing, first: int, last: int, low: float, high: float
) -> tuple[Answer, str]:
    already = f"already faster at {first:,}"
    match crossing.answer:
        case Crossed.UNCLEAR:
            return Answer.CANNOT_TELL, "the intervals overlap at the longest length"
        case Crossed.NEVER:
            beyond = last >= high / NEAR
            why = f"not faster up to {last:,}"
            return (Answer.NOT_REPRODUCED if beyond else Answer.CANNOT_TELL), why
        case Crossed.ALWAYS if low > 0:
            return (Answer.NOT_REPRODUCED if first <= low * NEAR else Answer.CANNOT_TELL), already
        case Crossed.ALWAYS:
            return Answer.REPRODUCED, already
    # an interval that reaches the shortest length may begin before it
    begin = crossing.low if crossing.low > first else 0.0
    if low <= begin and crossing.high <= high:
        return Answer.REPRODUCED, ""
    if crossing.high < low or begin > high:
        return Answer.NOT_REPRODUCED, ""
    return Answer.CANNOT_TELL, "the interval reaches both sides"


def _tail(curve: CostCurve, quantity: ClaimedCost) -> LogCurve:
    """The longest lengths that ran in one form, where a counted cost is straight."""
    logs = curve.costs[quantity]
    form = curve.rows["form"].loc[list(logs.lengths)]
    changes = np.flatnonzero((form != form.shift(-1)).to_numpy())
    start = changes[-2] + 1 if len(changes) > 1 else 0
    return logs[max(start, len(logs) - FEWEST) :]


def _ordered(logs: LogCurve, slopes: LogCurve, formula: Formula) -> tuple[Answer, str]:
    fitted, leads = _fit(logs, formula)
    error, half = np.abs(slopes.logs - fitted), slopes.half
    if len(logs) < FEWEST:
        return Answer.CANNOT_TELL, f"too few lengths of one form: {len(logs)} of at least {FEWEST}"
    if not np.isfinite(half).all():
        return Answer.CANNOT_TELL, "no confidence interval"
    if leads and (error + half <= BEND).all():
        return Answer.REPRODUCED, ""
    if leads and not (error - half > BEND).any():
        return Answer.CANNOT_TELL, "the intervals reach both sides"
    if leads and error[-1] <= NEARER * error[0]:
        return Answer.CANNOT_TELL, "still bending"
    return Answer.NOT_REPRODUCED, f"the slope of the formula is {fitted[-1]:.2f}"


def _fit(logs: LogCurve, formula: Formula) -> tuple[NDArray[np.float64], bool]:
    """Slopes of the formula fitted to the costs, and whether its leading term contributes."""
    n, cost = logs.lengths, np.exp(logs.logs)
    terms = np.array([n**power * np.log(n) ** log_power for power, log_power in formula.terms])
    leading = max(range(len(terms)), key=lambda i: formula.terms[i])
    kept = list(range(len(terms)))
    while True:
        factors = np.linalg.lstsq((terms[kept] / cost).T, np.ones(len(n)), rcond=None)[0]
        if len(kept) == 1 or (factors > 0).all():
            break
        kept.remove(kept[int(np.argmin(factors))])
    steps = np.diff(np.log(factors @ terms[kept])) / np.diff(np.log(n))
    return steps, leading in kept


def _limit(curve: CostCurve, limit: int, *, lost: Answer, fits: Answer) -> Judgement:
    """The answer `lost` if memory ran out by a length, or `fits` if it was measured there."""
    out = [n for n in curve.lost if n <= limit * NEAR]
    if out:
        return _judgement(curve, lost, f"out of memory at {min(out):,}")
    at = nearest(limit, [int(n) for n in curve.rows.index])
    if at is None:
        raise OutOfScope(f"{limit:,} is not in the sweep")
    if at in curve.fitting:
        return _judgement(curve, fits, f"fits at {at:,}")
    row = curve.rows.loc[at]
    return _judgement(curve, Answer.CANNOT_TELL, f"{row['outcome']} at {at:,}: {row['reason']}")


def _judgement(curve: CostCurve, answer: Answer, why: str) -> Judgement:
    """The answer with the longest length measured."""
    label = f"longest length measured of {curve.series}, {curve.mode}"
    numbers = [Number(what=label, unit=Unit.COUNT, value=n) for n in curve.fitting[-1:]]
    lengths = tuple(int(n) for n in curve.rows.index)
    why = f"{curve.series}: {why}"
    return Judgement(answer=answer, why=why, numbers=tuple(numbers), lengths=lengths)
