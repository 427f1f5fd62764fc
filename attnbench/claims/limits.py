"""Predicates about what fits, what a device reaches, and what can decode.

What fits is bound to a machine and to the tokens of a batch. `oom` and `fits` are judged as they
are, on whatever the sweep ran on: their claim is an order of who stops first. Absolute lengths and
rates are judged on the device of the claim alone.
"""

from dataclasses import replace
from math import log

from attnbench.claims.bench import Bench, Curve
from attnbench.claims.claim import (
    NEAR,
    Answer,
    Exactly,
    Judgement,
    Measured,
    Number,
    OutOfScope,
    Quantity,
    Subject,
    nearest,
)
from attnbench.metrics import Unit
from attnbench.records import Causality, Level, Mode


def oom(bench: Bench, a: Subject, mode: Mode, length: int) -> Judgement:
    """A runs out of memory, or is predicted to, at that length or a shorter one.

    Not reproduced if A was measured at that length; else it cannot be told.
    """
    curve = bench.curve(a, mode)
    return _limit(curve, length, lost=Answer.REPRODUCED, fits=Answer.NOT_REPRODUCED)


def fits(bench: Bench, a: Subject, mode: Mode, length: int) -> Judgement:
    """A was measured at the length; not reproduced if it ran out of memory there or before."""
    curve = bench.curve(a, mode)
    return _limit(curve, length, lost=Answer.NOT_REPRODUCED, fits=Answer.REPRODUCED)


def max_length(bench: Bench, a: Subject, mode: Mode, *, relation: Exactly) -> Judgement:
    """The longest length that fits is the claim's: A was measured there and ran out at the next.

    Not reproduced if A was measured beyond, or ran out of memory at it or before; else it cannot be
    told. Judged on the device of the claim alone.
    """
    curve, limit = bench.curve(a, mode), relation.values[0]
    longest, lost = max(curve.fitting, default=0), min(curve.lost, default=0)
    if longest > limit * NEAR:
        return _judgement(curve, Answer.NOT_REPRODUCED, f"fits at {longest:,}")
    if lost and lost <= limit * NEAR:
        return _judgement(curve, Answer.NOT_REPRODUCED, f"out of memory at {lost:,}")
    if lost and nearest(limit, curve.fitting) is not None:
        return _judgement(curve, Answer.REPRODUCED, f"out of memory from {lost:,}")
    return _judgement(curve, Answer.CANNOT_TELL, "where memory runs out was not measured")


def throughput(bench: Bench, a: Subject, mode: Mode) -> Measured:
    """The most core FLOPs per second of any length, in TFLOP/s, forward, at level core.

    Judged on the device of the claim alone; around the core other work is timed too.
    """
    if bench.level is not Level.CORE or mode != Mode.INFERENCE:
        raise OutOfScope("a rate is judged forward, at level core")
    curve = bench.curve(a, mode)
    rates = curve.costs[Quantity.CORE_FLOPS].minus(curve.costs[Quantity.TIME])
    if not len(rates):
        raise OutOfScope(f"{curve.series} was not measured")
    rates = replace(rates, logs=rates.logs - log(1e12))
    best = rates[[int(rates.logs.argmax())]]
    what = f"TFLOP/s of {curve.series} at {best.lengths[0]:,.0f}, {mode}"
    return Measured(what=what, logs=best, lengths=tuple(int(n) for n in rates.lengths))


def no_causal_form(bench: Bench, a: Subject, *, mode: Mode) -> Judgement:
    """The card of A, as stored with the sweep, has no causal form; nothing is measured."""
    card = bench.cards.get(a.mechanism)
    if card is None:
        raise OutOfScope(f"{a.mechanism} is not in the sweep")
    never = card.causality is Causality.NEVER
    answer = Answer.REPRODUCED if never else Answer.NOT_REPRODUCED
    return Judgement(answer=answer, why=f"causal form of {card.mechanism}: {card.causality}")


def _limit(curve: Curve, limit: int, *, lost: Answer, fits: Answer) -> Judgement:
    """The answer for memory that ran out by a length, or for a case that was measured there."""
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


def _judgement(curve: Curve, answer: Answer, why: str) -> Judgement:
    """The answer with the longest length that fitted."""
    what = f"longest length measured of {curve.series}, {curve.mode}"
    numbers = [Number(what=what, unit=Unit.COUNT, value=n) for n in curve.fitting[-1:]]
    lengths = tuple(int(n) for n in curve.rows.index)
    why = f"{curve.series}: {why}"
    return Judgement(answer=answer, why=why, numbers=tuple(numbers), lengths=lengths)
