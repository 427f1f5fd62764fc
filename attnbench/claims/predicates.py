"""What a check may assert of the curves of a sweep: each predicate gives a judgement.

The 95 % confidence interval decides (`claims.judging`). Lengths at which one of the two was not
measured are not compared. Of a quantity such as `first_token/time` the first cost is that of A, the
second that of B.

Only the length varies within a sweep, so of a formula such as N*K*d the part in N is judged: every
other symbol is a constant. FLOPs are exact, those of the cards as stored with the sweep, of the
core alone and of one layer and sequence. Memory limits depend on the machine and on the tokens of a
batch; where a claim names no device, `oom` and `fits` say which mechanism stops first.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf, log

import numpy as np

from attnbench.analysis.scaling import BEND, FEWEST, Crossover, CrossoverKind, find_crossover
from attnbench.claims.bench import CostCurve, Curves
from attnbench.claims.claim import (
    ALL,
    CORE_FLOPS,
    NEAR,
    TIME,
    Answer,
    ClaimedCost,
    Costs,
    Formula,
    Judgement,
    Lengths,
    Number,
    OutOfScope,
    Range,
    nearest,
)
from attnbench.claims.judging import (
    MeasuredRatio,
    compare,
    compare_curves,
    holds_everywhere,
    too_few,
)
from attnbench.metrics import Unit
from attnbench.records import Causality, Outcome
from attnbench.statistics.curves import Array, LogCurve

# a slope still approaches an order if its last error is at most this share of its first
NEARER = 0.75


def less(
    a: Curves, b: Curves, quantity: Costs, lengths: Lengths = ALL, value: float = 1.0
) -> Judgement:
    """Each of A costs less than each of B, at every length of the claim that both were measured at.

    With a value, A costs less than that many times B. One pair whose whole interval lies on the
    other side at one length refutes it. To be reproduced, none may be missing from the sweep, and
    only lengths count at which each was measured or ran out of memory or time.
    """
    ratios = [compare_curves(y, x, quantity[::-1]) for x in a for y in b]
    at = lengths.among(sorted({n for each in ratios for n in each.lengths}))
    judged = _above_one([each.at(at) for each in ratios], lengths, value)
    if judged.answer is Answer.NOT_REPRODUCED:
        return judged
    costs = [*((curve, quantity[0]) for curve in a), *((curve, quantity[1]) for curve in b)]
    ended = [n for n in at if all(_ended(curve, n, cost) for curve, cost in costs)]
    if not ended:
        return replace(judged, answer=Answer.CANNOT_TELL, why="at no length were all measured")
    return _above_one([each.at(ended) for each in ratios], lengths, value)


def ratio(
    a: CostCurve, b: CostCurve, quantity: Costs, value: Range, lengths: Lengths = ALL
) -> Judgement:
    """The quantity of A over that of B, of one sequence, has the claimed value.

    Over several lengths the geometric mean counts. All of its confidence interval must lie where
    the claim says. A number alone allows a factor of two either way, but not across 1: a claimed
    gain is not reproduced by a loss.
    """
    found = compare_curves(a, b, quantity).among(lengths)
    if lengths == ALL:
        raise OutOfScope("the source states no length")
    return compare(found, value, too_few(len(found.lengths), lengths))


def increasing(a: CostCurve, b: CostCurve, quantity: Costs, lengths: Lengths = ALL) -> Judgement:
    """The quantity of A over that of B grows from each length to the next.

    The confidence interval of every step must lie above zero; one that lies below refutes it.
    """
    found = compare_curves(a, b, quantity).among(lengths)
    steps = found.logs.slopes()
    # nothing comes before the first length, so no step can fail there
    low, high = (np.concatenate([[inf], ends]) for ends in (steps.low, steps.high))
    return holds_everywhere(low, high, found.numbers, lengths)


def growth(
    a: CostCurve, quantity: ClaimedCost, lengths: tuple[float, float], value: Range
) -> Judgement:
    """The quantity of one sequence of A at the second length over that at the first.

    It is compared with the claimed value as in `ratio`.
    """
    logs = a.costs[quantity]
    start, end = (nearest(n, logs.whole) for n in lengths)
    if start is None or end is None:
        both = " and ".join(f"{n:,.0f}" for n in lengths)
        raise OutOfScope(f"{a.series} was not measured at both {both}")
    base = logs.at([start])
    step = replace(logs.at([end]), lengths=base.lengths).minus(base)
    label = f"{quantity} of {a.series}, {a.mode}, {start:,} to {end:,}"
    return compare(MeasuredRatio(label=label, logs=step, lengths=(start, end)), value)


def crossover(a: CostCurve, b: CostCurve, value: Range) -> Judgement:
    """The length from which B takes less time than A, for good, interpolated in log–log.

    `x..y`: A is faster at x and B at y; reproduced if the confidence interval of the crossing lies
    between them. `<= x`: B is faster from x on; reproduced if the interval ends by x, or if B is
    faster at every length measured, one of which is at most x. A number alone: within a factor of
    2. A sweep that ends before x, or begins beyond y, is out of scope.
    """
    measured = compare_curves(b, a, (TIME, TIME)).among(ALL)
    first, last = measured.lengths[0], measured.lengths[-1]
    if last < (value.low or value.high) / NEAR or first > value.high * NEAR:
        raise OutOfScope(f"no length near {value.text}: both measured from {first:,} to {last:,}")
    crossing = find_crossover(measured.logs)
    answer, why = _crossed(crossing, first, last, value.low, value.high)
    number = Number(
        what=f"length from which {b.series} is faster than {a.series}, {a.mode}",
        unit=Unit.COUNT,
        value=crossing.length,
        low=crossing.low,
        high=crossing.high,
    )
    # without a crossing the ratios at both ends show which is faster throughout
    ends = measured.numbers[:: max(1, len(measured.lengths) - 1)]
    numbers = (number,) if crossing.answer is CrossoverKind.FROM else ends
    return Judgement(answer=answer, why=why, numbers=numbers, lengths=measured.lengths)


def order(a: CostCurve, quantity: ClaimedCost, value: Formula) -> Judgement:
    """The cost grows like the formula, over the last four lengths that ran in one form.

    The terms of the formula are fitted with non-negative factors. Reproduced if every slope between
    neighbouring lengths agrees with the fit within 0.1 and the leading term contributes; not
    reproduced if one differs by more and does not come closer. A formula without N is out of scope.
    """
    if not any(map(any, value)):
        raise OutOfScope("a sweep varies only N, and the formula does not contain it")
    logs = _tail(a, quantity)
    if len(logs) < 2:
        raise OutOfScope(f"{a.series} has no {quantity} at two lengths")
    slopes = logs.slopes()
    number = Number(
        what=f"exponent of N of {quantity} of {a.series}"
        + ("" if quantity.counted else f", {a.mode}"),
        unit=Unit.EXPONENT,
        value=float(np.ptp(logs.logs) / np.ptp(np.log(logs.lengths))),
        low=float(slopes.low.min()),
        high=float(slopes.high.max()),
    )
    answer, why = _ordered(logs, slopes, value)
    return Judgement(answer=answer, why=why, numbers=(number,), lengths=tuple(logs.whole))


def oom(a: CostCurve, lengths: float) -> Judgement:
    """A runs out of memory, or is predicted to, at that length or a shorter one.

    Not reproduced if A was measured at that length; otherwise the answer is "cannot tell".
    """
    return _limit(a, lengths, lost=Answer.REPRODUCED, fits=Answer.NOT_REPRODUCED)


def fits(a: CostCurve, lengths: float) -> Judgement:
    """A was measured at the length; not reproduced if it ran out of memory there or before."""
    return _limit(a, lengths, lost=Answer.NOT_REPRODUCED, fits=Answer.REPRODUCED)


def throughput(a: CostCurve, value: Range) -> Judgement:
    """The highest rate of the core over all lengths, in TFLOP/s.

    Meant for inference at level core: elsewhere other work is timed too.
    """
    rates = a.over(a, CORE_FLOPS, TIME)
    if not len(rates):
        raise OutOfScope(f"{a.series} was not measured")
    best = replace(rates, logs=rates.logs - log(1e12))[[int(rates.logs.argmax())]]
    label = f"TFLOP/s of {a.series} at {best.lengths[0]:,.0f}, {a.mode}"
    return compare(MeasuredRatio(label=label, logs=best, lengths=tuple(rates.whole)), value)


def no_causal_form(a: CostCurve) -> Judgement:
    """The card of A, as stored with the sweep, has no causal form; nothing is measured."""
    if a.card is None:
        raise OutOfScope(f"the sweep has no card of {a.mechanism}")
    never = a.card.causality is Causality.NEVER
    answer = Answer.REPRODUCED if never else Answer.NOT_REPRODUCED
    return Judgement(answer=answer, why=f"causal form of {a.mechanism}: {a.card.causality}")


def _above_one(ratios: Sequence[MeasuredRatio], lengths: Lengths, factor: float) -> Judgement:
    """Whether every ratio times the factor is above 1 at every length."""
    low, high = (np.concatenate([getattr(r.logs, end) for r in ratios]) for end in ("low", "high"))
    numbers = [number for r in ratios for number in r.numbers]
    return holds_everywhere(low + log(factor), high + log(factor), numbers, lengths)


def _ended(curve: CostCurve, length: int, quantity: ClaimedCost) -> bool:
    """Whether a curve was measured at a length, or ran out of memory or time there."""
    ended = curve.rows["outcome"].get(length) in (Outcome.OOM, Outcome.TIMEOUT)
    return ended or length in curve.costs[quantity].lengths


def _crossed(
    crossing: Crossover, first: int, last: int, low: float, high: float
) -> tuple[Answer, str]:
    already = f"already faster at {first:,}"
    match crossing.answer:
        case CrossoverKind.UNCLEAR:
            return Answer.CANNOT_TELL, "the intervals overlap at the longest length"
        case CrossoverKind.NEVER:
            beyond = Answer.NOT_REPRODUCED if last >= high / NEAR else Answer.CANNOT_TELL
            return (Answer.REPRODUCED if high == inf else beyond), f"not faster up to {last:,}"
        case CrossoverKind.ALWAYS if low > 0:
            return (Answer.NOT_REPRODUCED if first <= low * NEAR else Answer.CANNOT_TELL), already
        case CrossoverKind.ALWAYS:
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


def _fit(logs: LogCurve, formula: Formula) -> tuple[Array, bool]:
    """Slopes of the formula fitted to the costs, and whether its leading term contributes."""
    n, cost = logs.lengths, np.exp(logs.logs)
    terms = np.array([n**power * np.log(n) ** log_power for power, log_power in formula])
    leading = max(range(len(terms)), key=lambda i: formula[i])
    kept = list(range(len(terms)))
    while True:
        factors = np.linalg.lstsq((terms[kept] / cost).T, np.ones(len(n)), rcond=None)[0]
        if len(kept) == 1 or (factors > 0).all():
            break
        kept.remove(kept[int(np.argmin(factors))])
    steps = np.diff(np.log(factors @ terms[kept])) / np.diff(np.log(n))
    return steps, leading in kept


def _limit(curve: CostCurve, limit: float, *, lost: Answer, fits: Answer) -> Judgement:
    """The answer `lost` if memory ran out by a length, or `fits` if it was measured there."""
    lengths = tuple(int(n) for n in curve.rows.index)
    at = nearest(limit, lengths)
    if out := [n for n in curve.oom_lengths if n <= limit * NEAR]:
        answer, why = lost, f"out of memory at {min(out):,}"
    elif at is None:
        raise OutOfScope(f"{limit:,.0f} is not in the sweep")
    elif at in curve.measured_lengths:
        answer, why = fits, f"fits at {at:,}"
    else:
        row = curve.rows.loc[at]
        answer, why = Answer.CANNOT_TELL, f"{row['outcome']} at {at:,}: {row['reason']}"
    label = f"longest length measured of {curve.series}, {curve.mode}"
    numbers = tuple(
        Number(what=label, unit=Unit.COUNT, value=n) for n in curve.measured_lengths[-1:]
    )
    return Judgement(answer=answer, why=f"{curve.series}: {why}", numbers=numbers, lengths=lengths)
