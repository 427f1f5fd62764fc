"""Predicates about how a cost grows with length, and where two costs cross.

Only the length varies within a sweep, so of a formula such as N*K*d the part in N is judged: every
other symbol is a constant. FLOPs are exact, those of the cards as stored with the sweep, of the
core alone and of one layer and sequence.
"""

import numpy as np
from numpy.typing import NDArray

from attnbench.analysis.crossover import Answer as Crossed
from attnbench.analysis.crossover import Crossing, find_crossing
from attnbench.analysis.curves import LogCurve
from attnbench.analysis.scaling import BEND, FEWEST
from attnbench.claims.bench import Bench, Curve
from attnbench.claims.claim import (
    EVERYWHERE,
    NEAR,
    Answer,
    Bracket,
    Formula,
    Judgement,
    Measured,
    Number,
    OutOfScope,
    Quantity,
    Sign,
    Subject,
)
from attnbench.claims.costs import compare_curves
from attnbench.metrics import Unit
from attnbench.records import Mode

# an order that is still being approached: by the last step the slope is off by this much less
NEARER = 0.75


def crossover(bench: Bench, a: Subject, b: Subject, mode: Mode, *, relation: Bracket) -> Judgement:
    """The length from which B takes less time than A, for good, interpolated in log–log.

    `x <= crossover(…) <= y`: A is faster at x and B at y; reproduced if the interval of the
    crossing lies within them. `<= x`: B is faster at x already and beyond; reproduced if the
    interval ends by x, or B wins at every length measured and one of them is no more than x.
    `== x`: within a factor of 2. A sweep that ends before x, or begins beyond y, is out of scope.
    """
    one, other = bench.curve(a, mode), bench.curve(b, mode)
    measured = compare_curves(other, one, Quantity.TIME, EVERYWHERE)
    first, last = measured.lengths[0], measured.lengths[-1]
    low, high = relation.bounds
    least = max(low, high if relation.sign is Sign.AT_MOST else 0)
    if last < least / NEAR or first > high * NEAR:
        raise OutOfScope(f"no length near {relation}: both measured from {first:,} to {last:,}")
    crossing = find_crossing(measured.logs)
    answer, why = _crossed(crossing, first, last, low, high)
    number = Number(
        what=f"length from which {other.series} is faster than {one.series}, {mode}",
        unit=Unit.COUNT,
        value=crossing.length,
        low=crossing.low,
        high=crossing.high,
    )
    # without a crossing the ends say who is faster throughout
    ends = measured.numbers[:: max(1, len(measured.lengths) - 1)]
    numbers = (number,) if crossing.answer is Crossed.FROM else ends
    return Judgement(answer=answer, why=why, numbers=numbers, lengths=measured.lengths)


def order(
    bench: Bench, a: Subject, quantity: Quantity, *, mode: Mode, formula: Formula
) -> Judgement:
    """The cost grows as the formula does, over the last four lengths that ran in one form.

    The terms of the formula are fitted with factors that are not negative. Reproduced if every
    slope between neighbouring lengths is that of the fit within 0.1 and the leading term has a
    part; not reproduced if one is off by more and does not come nearer. A formula without N is out
    of scope.
    """
    if not any(map(any, formula.terms)):
        raise OutOfScope(f"a sweep varies N alone, and {formula.text} does not hold it")
    curve = bench.curve(a, mode)
    logs = _tail(curve, quantity)
    if len(logs) < 2:
        raise OutOfScope(f"{curve.series} has no {quantity} at two lengths")
    slopes = logs.slopes()
    counted = quantity in (Quantity.CORE_FLOPS, Quantity.PROJECTION_FLOPS)
    number = Number(
        what=f"exponent of N of {quantity} of {curve.series}" + ("" if counted else f", {mode}"),
        unit=Unit.EXPONENT,
        value=float(np.ptp(logs.logs) / np.ptp(np.log(logs.lengths))),
        low=float(slopes.low.min()),
        high=float(slopes.high.max()),
    )
    answer, why = _ordered(logs, slopes, formula)
    lengths = tuple(int(n) for n in logs.lengths)
    return Judgement(answer=answer, why=why, numbers=(number,), lengths=lengths)


def projections_over_core(bench: Bench, a: Subject, *, mode: Mode) -> Measured:
    """FLOPs of the linear projections over FLOPs of the core, exact; the least of all lengths."""
    curve = bench.curve(a, mode)
    logs = curve.costs[Quantity.PROJECTION_FLOPS].minus(curve.costs[Quantity.CORE_FLOPS])
    if not len(logs):
        raise OutOfScope(f"{curve.series} has no FLOPs of both")
    what = f"FLOPs of the projections over those of the core of {curve.series}"
    lengths = tuple(int(n) for n in logs.lengths)
    return Measured(what=what, logs=logs[[int(np.argmin(logs.logs))]], lengths=lengths)


def _crossed(
    crossing: Crossing, first: int, last: int, low: float, high: float
) -> tuple[Answer, str]:
    already = f"faster from {first:,} already"
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


def _tail(curve: Curve, quantity: Quantity) -> LogCurve:
    """The longest lengths that ran in one form: the straight end of a counted cost."""
    logs = curve.costs[quantity]
    form = curve.rows["form"].loc[list(logs.lengths)]
    changes = np.flatnonzero((form != form.shift(-1)).to_numpy())
    start = changes[-2] + 1 if len(changes) > 1 else 0
    return logs[max(start, len(logs) - FEWEST) :]


def _ordered(logs: LogCurve, slopes: LogCurve, formula: Formula) -> tuple[Answer, str]:
    fitted, leads = _fit(logs, formula)
    off, spread = np.abs(slopes.logs - fitted), slopes.half
    if len(logs) < FEWEST:
        return Answer.CANNOT_TELL, f"too few lengths of one form: {len(logs)} of at least {FEWEST}"
    if not np.isfinite(spread).all():
        return Answer.CANNOT_TELL, "no confidence interval"
    if leads and (off + spread <= BEND).all():
        return Answer.REPRODUCED, ""
    if leads and not (off - spread > BEND).any():
        return Answer.CANNOT_TELL, "the intervals reach both sides"
    if leads and off[-1] <= NEARER * off[0]:
        return Answer.CANNOT_TELL, "still bending"
    return Answer.NOT_REPRODUCED, f"the formula has {fitted[-1]:.2f} there"


def _fit(logs: LogCurve, formula: Formula) -> tuple[NDArray[np.float64], bool]:
    """Slopes of the formula fitted to the costs, and whether its leading term has a part in it."""
    n, cost = logs.lengths, np.exp(logs.logs)
    terms = np.array([n**power * np.log(n) ** logs_ for power, logs_ in formula.terms])
    leading = max(range(len(terms)), key=lambda i: formula.terms[i])
    kept = list(range(len(terms)))
    while True:
        factors = np.linalg.lstsq((terms[kept] / cost).T, np.ones(len(n)), rcond=None)[0]
        if len(kept) == 1 or (factors > 0).all():
            break
        kept.remove(kept[int(np.argmin(factors))])
    steps = np.diff(np.log(factors @ terms[kept])) / np.diff(np.log(n))
    return steps, leading in kept
