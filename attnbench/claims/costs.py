"""Predicates and quantities that compare mechanisms, or the cost of one at two lengths.

A is the first mechanism named and B the second. The 95 % confidence interval decides: a claim is
reproduced only if all of it lies on the claimed side, not reproduced only if all of it lies on the
other; otherwise the answer is "cannot tell". Lengths at which one of the two was not measured are
not compared.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf, log

import numpy as np
from numpy.typing import NDArray

from attnbench.claims.bench import Bench, CostCurve
from attnbench.claims.claim import (
    EVERYWHERE,
    Answer,
    ClaimedCost,
    ClaimedGroup,
    ClaimedSeries,
    Judgement,
    Lengths,
    Measured,
    Number,
    OutOfScope,
    Relation,
    Sign,
    as_ratio,
    nearest,
)
from attnbench.records import Mode, Outcome
from attnbench.statistics.curves import half_widths

# "no significant difference": a factor that is invisible in a logarithmic figure
SAME = 1.1

# lengths that a claim over a range needs; one that lists fewer needs all of those
FEWEST = 3


def faster(
    bench: Bench, a: ClaimedSeries, b: ClaimedSeries, mode: Mode, lengths: Lengths = EVERYWHERE
) -> Judgement:
    """A takes less time than B, at every length of the claim that both were measured at."""
    return _above_one([speedup(bench, a, b, mode, lengths)], lengths)


def less_memory(
    bench: Bench, a: ClaimedSeries, b: ClaimedSeries, mode: Mode, lengths: Lengths = EVERYWHERE
) -> Judgement:
    """A needs less memory than B, at every length of the claim that both were measured at."""
    return _above_one([memory_saving(bench, a, b, mode, lengths)], lengths)


def same(
    bench: Bench,
    a: ClaimedSeries,
    b: ClaimedSeries,
    quantity: ClaimedCost,
    mode: Mode,
    lengths: Lengths = EVERYWHERE,
) -> Judgement:
    """A and B differ by less than a tenth, at every length that both were measured at.

    Reproduced if each confidence interval of the ratio lies within a tenth of 1, not reproduced if
    one lies entirely outside.
    """
    measured = ratio(bench, a, b, quantity, mode, lengths)
    low, high = measured.logs.low, measured.logs.high
    # above zero where the ratio is within the factor, whichever end is nearer to it
    least = log(SAME) - np.maximum(np.abs(high), np.abs(low))
    most = log(SAME) - np.where(low > 0, low, -high).clip(0)
    return everywhere(least, most, measured.numbers, lengths)


def fastest(
    bench: Bench, a: ClaimedSeries, among: ClaimedGroup, mode: Mode, lengths: Lengths = EVERYWHERE
) -> Judgement:
    """A takes less time than every other of the group, at every length of the claim.

    One rival whose whole interval is faster at one length refutes it. To be reproduced, no member
    may be missing from the sweep, and only lengths count at which each was measured or ran out of
    memory or time.
    """
    return _extreme(bench, a, among, ClaimedCost.TIME, mode, lengths, least=True)


def slowest(
    bench: Bench, a: ClaimedSeries, among: ClaimedGroup, mode: Mode, lengths: Lengths = EVERYWHERE
) -> Judgement:
    """A takes more time than every other of the group; lengths and members as in `fastest`."""
    return _extreme(bench, a, among, ClaimedCost.TIME, mode, lengths, least=False)


def least_memory(
    bench: Bench, a: ClaimedSeries, among: ClaimedGroup, mode: Mode, lengths: Lengths = EVERYWHERE
) -> Judgement:
    """A needs less memory than every other of the group; lengths and members as in `fastest`."""
    return _extreme(bench, a, among, ClaimedCost.MEMORY, mode, lengths, least=True)


def increasing(bench: Bench, of: Measured, *, mode: Mode) -> Judgement:
    """The ratio grows from each length to the next; that of B over A falls where A over B grows.

    The confidence interval of every step must lie above zero; one that lies below refutes it.
    """
    steps = of.logs.slopes()
    # nothing comes before the first length, so no step can fail there
    low, high = (np.concatenate([[inf], ends]) for ends in (steps.low, steps.high))
    return everywhere(low, high, of.numbers, of.about or EVERYWHERE)


def rises_with(
    bench: Bench,
    a: ClaimedSeries,
    option: str,
    quantity: ClaimedCost,
    mode: Mode,
    lengths: Lengths = EVERYWHERE,
) -> Judgement:
    """The quantity of A increases with a numeric option, at each length of the claim.

    Neighbouring values of the option in the sweep are compared, among those that A allows.
    """
    allowed = dict(a.options).get(option)
    others = tuple(pair for pair in a.options if pair[0] != option)
    variants: dict[float, CostCurve] = {}
    for curve in bench.matching(replace(a, options=others), mode):
        value = curve.options.get(option)
        if isinstance(value, int | float) and (allowed is None or value in allowed):
            variants.setdefault(value, curve)
    if len(variants) < 2:
        raise OutOfScope(f"the sweep has fewer than two values of {option} of {a.mechanism}")
    steps = pairwise(curve for _, curve in sorted(variants.items(), key=lambda item: item[0]))
    parts = [compare_curves(more, less, quantity, lengths) for less, more in steps]
    return _above_one(parts, lengths)


def speedup(
    bench: Bench, a: ClaimedSeries, b: ClaimedSeries, mode: Mode, lengths: Lengths = EVERYWHERE
) -> Measured:
    """The time of B over that of A, of one sequence."""
    return ratio(bench, b, a, ClaimedCost.TIME, mode, lengths)


def speedup_over_passes(
    bench: Bench, a: ClaimedSeries, b: ClaimedSeries, mode: Mode, lengths: Lengths = EVERYWHERE
) -> Measured:
    """The time of a pass of B over the tokens before a step, over the time of a step of A.

    The speed-up of A with a state over B without one, which recomputes all past tokens.
    """
    slow, fast = bench.curve(b, mode), bench.curve(a, mode)
    logs = slow.costs[ClaimedCost.FIRST_TOKEN].minus(fast.costs[ClaimedCost.TIME])
    if not len(logs):
        raise OutOfScope(f"{fast.series} and {slow.series} were not decoded at a common length")
    label = f"time of a pass of {slow.series} over a step of {fast.series}"
    return Measured.among(label, logs, lengths)


def memory_saving(
    bench: Bench, a: ClaimedSeries, b: ClaimedSeries, mode: Mode, lengths: Lengths = EVERYWHERE
) -> Measured:
    """The memory of B over that of A, of one sequence."""
    return ratio(bench, b, a, ClaimedCost.MEMORY, mode, lengths)


def ratio(
    bench: Bench,
    a: ClaimedSeries,
    b: ClaimedSeries,
    quantity: ClaimedCost,
    mode: Mode,
    lengths: Lengths = EVERYWHERE,
) -> Measured:
    """The quantity of A over that of B, of one sequence."""
    return compare_curves(bench.curve(a, mode), bench.curve(b, mode), quantity, lengths)


def growth(
    bench: Bench, quantity: ClaimedCost, a: ClaimedSeries, mode: Mode, first: int, last: int
) -> Measured:
    """The quantity of one sequence of A at the second length over that at the first."""
    curve = bench.curve(a, mode)
    logs = curve.costs[quantity]
    start, end = (nearest(n, logs.whole) for n in (first, last))
    if start is None or end is None:
        raise OutOfScope(f"{curve.series} was not measured at both {first:,} and {last:,}")
    base = logs.at([start])
    step = replace(logs.at([end]), lengths=base.lengths).minus(base)
    label = f"{quantity} of {curve.series}, {mode}, {start:,} to {end:,}"
    return Measured(label=label, logs=step, lengths=(start, end))


def compare(bench: Bench, of: Measured, *, relation: Relation, mode: Mode) -> Judgement:
    """The confidence interval of a ratio lies where the claim says.

    Over several lengths the geometric mean counts. `==` allows a factor of two either way, but not
    across 1: a claimed gain is not reproduced by a loss.
    """
    if of.about == EVERYWHERE:
        raise OutOfScope("the source states no length")
    mean, error, df = of.logs.mean()
    half = float(half_widths([error], [df])[0])
    low, high = mean - half, mean + half
    least, most = (log(end) if end > 0 else -inf for end in relation.bounds)
    if relation.sign is Sign.EQUAL and (claimed := log(relation.values[0])):
        least, most = (max(least, 0.0), most) if claimed > 0 else (least, min(most, 0.0))
    few = too_few(len(of.logs), of.about) if of.about else ""
    inside, outside = low >= least and high <= most, high < least or low > most
    answer, why = Answer.CANNOT_TELL, few
    if not np.isfinite(half):
        why = "no confidence interval"
    elif not (inside or outside):
        why = f"the confidence interval reaches both sides of {relation}"
    elif inside and not few:
        answer = Answer.REPRODUCED
    elif not few:
        answer, why = Answer.NOT_REPRODUCED, f"the claim is {relation}"
    single = of.about is not None and len(of.logs) == 1
    number = as_ratio(of.label, mean, low, high, of.logs.lengths[0] if single else None)
    return Judgement(answer=answer, why=why, numbers=(number,), lengths=of.lengths)


def compare_curves(a: CostCurve, b: CostCurve, quantity: ClaimedCost, lengths: Lengths) -> Measured:
    """The ratio of a quantity of two curves. Raises `OutOfScope` if they share no length."""
    logs = a.over(b, quantity)
    if not len(logs):
        raise OutOfScope(f"{a.series} and {b.series} have no {quantity} at a common length")
    return Measured.among(f"{quantity} of {a.series} over {b.series}, {a.mode}", logs, lengths)


def everywhere(
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    numbers: Sequence[Number],
    lengths: Lengths,
) -> Judgement:
    """Whether each confidence interval, `low` to `high`, of `numbers` lies above zero.

    Reproduced if all do, at three lengths or all that are listed; not reproduced if any lies
    entirely below; otherwise the answer is "cannot tell".
    """
    at = [number.length or 0 for number in numbers]
    unknown, below, open_ = np.isnan(low), high < 0, ~(low > 0)
    answer = Answer.CANNOT_TELL
    if below.any():
        answer, why = Answer.NOT_REPRODUCED, f"not true at {_listed(at, below)}"
    elif unknown.any():
        why = f"no confidence interval at {_listed(at, unknown)}"
    elif open_.any():
        why = f"the confidence interval reaches both sides at {_listed(at, open_)}"
    elif not (why := too_few(len(set(at)), lengths)):
        answer = Answer.REPRODUCED
    # the number closest to refuting the claim comes first
    ordered = tuple(numbers[i] for i in np.argsort(low, kind="stable"))
    return Judgement(answer=answer, why=why, numbers=ordered, lengths=tuple(sorted(set(at))))


def too_few(count: int, lengths: Lengths) -> str:
    """Why this number of lengths does not suffice, or nothing."""
    needed = min(FEWEST, len(lengths.listed) or FEWEST)
    return "" if count >= needed else f"too few lengths: {count} of at least {needed}"


def _above_one(parts: Sequence[Measured], lengths: Lengths) -> Judgement:
    """Whether every ratio is above 1 at every length."""
    low, high = (np.concatenate([getattr(p.logs, end) for p in parts]) for end in ("low", "high"))
    return everywhere(low, high, [number for part in parts for number in part.numbers], lengths)


def _extreme(
    bench: Bench,
    a: ClaimedSeries,
    among: ClaimedGroup,
    quantity: ClaimedCost,
    mode: Mode,
    lengths: Lengths,
    *,
    least: bool,
) -> Judgement:
    own = bench.curve(a, mode)
    others = [name for name in among.members if name != a.mechanism]
    best = {name: bench.matching(ClaimedSeries(mechanism=name), mode)[:1] for name in others}
    rivals = [curve for curves in best.values() for curve in curves]
    if not rivals:
        raise OutOfScope(f"the sweep has no other of {', '.join(among.members)}")
    pairs = [(rival, own) if least else (own, rival) for rival in rivals]
    shared = [pair for pair in pairs if len(pair[0].over(pair[1], quantity))]
    parts = [compare_curves(*pair, quantity, EVERYWHERE) for pair in shared]
    at = lengths.among(sorted({n for part in parts for n in part.lengths}))
    judged = _above_one([part.at(at) for part in parts], lengths)
    if judged.answer is Answer.NOT_REPRODUCED:
        return judged
    ended = [n for n in at if all(_ended(rival, n, quantity) for rival in rivals)]
    if not ended:
        why = "no length at which the whole group was measured"
        return replace(judged, answer=Answer.CANNOT_TELL, why=why)
    judged = _above_one([part.at(ended) for part in parts], lengths)
    missing = ", ".join(name for name, curves in best.items() if not curves)
    if missing and judged.answer is Answer.REPRODUCED:
        return replace(judged, answer=Answer.CANNOT_TELL, why=f"not in the sweep: {missing}")
    return judged


def _ended(curve: CostCurve, length: int, quantity: ClaimedCost) -> bool:
    """Whether a curve was measured at a length, or ran out of memory or time there."""
    if length in curve.costs[quantity].lengths:
        return True
    ended = (Outcome.OOM, Outcome.TIMEOUT)
    return length in curve.rows.index and curve.rows["outcome"].loc[length] in ended


def _listed(lengths: Sequence[int], chosen: NDArray[np.bool_]) -> str:
    """`512, 1,024, 2,048, … 65,536`."""
    pairs = zip(lengths, chosen, strict=True)
    texts = [f"{n:,}" for n in sorted({n for n, is_chosen in pairs if is_chosen})]
    return ", ".join(texts if len(texts) <= 4 else [*texts[:3], f"… {texts[-1]}"])
