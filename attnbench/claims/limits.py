"""Definitions of the predicates about what fits, what a device reaches, and what can decode.

What fits is bound to a machine and to the tokens of a batch. `oom` and `fits` are judged as they
are, on whatever the sweep ran on: their claim is an order of who stops first. Absolute lengths and
rates are judged on the device of the claim alone.
"""

import numpy as np

from attnbench.claims.bench import NEAR, Bench, Curve, OutOfScope, interval, nearest
from attnbench.claims.claim import Clause, Subject
from attnbench.claims.compare import compared, number, relation
from attnbench.claims.outcome import Answer, Judgement, Number
from attnbench.metrics import Unit
from attnbench.records import Causality, Level, Mode


def oom(bench: Bench, clause: Clause, mode: str) -> Judgement:
    """A runs out of memory, or is predicted to, at some length up to that of the claim.

    Not reproduced if A was measured at that length; else it cannot be told.
    """
    curve, limit = _curve(bench, clause, mode), _limit(clause)
    lost = [n for n in curve.lost if n <= limit * NEAR]
    if lost:
        return _told(curve, Answer.REPRODUCED, f"out of memory at {min(lost):,}", mode)
    return _unless_lost(curve, limit, mode, Answer.NOT_REPRODUCED, Answer.CANNOT_TELL)


def fits(bench: Bench, clause: Clause, mode: str) -> Judgement:
    """A was measured at the length; not reproduced if it ran out of memory there or before."""
    curve, limit = _curve(bench, clause, mode), _limit(clause)
    lost = [n for n in curve.lost if n <= limit * NEAR]
    if lost:
        return _told(curve, Answer.NOT_REPRODUCED, f"out of memory at {min(lost):,}", mode)
    return _unless_lost(curve, limit, mode, Answer.REPRODUCED, Answer.CANNOT_TELL)


def max_length(bench: Bench, clause: Clause, mode: str) -> Judgement:
    """The longest length that fits is the claim's: A was measured there and ran out at the next.

    Not reproduced if A was measured beyond, or ran out of memory at it or before; else it cannot be
    told. Judged on the device of the claim alone.
    """
    curve = _curve(bench, clause, mode)
    limit = float(relation(clause).values[0])
    fitting, lost = curve.fitting, curve.lost
    if max(fitting, default=0) > limit * NEAR:
        return _told(curve, Answer.NOT_REPRODUCED, f"fits at {max(fitting):,}", mode)
    if lost and min(lost) <= limit * NEAR:
        return _told(curve, Answer.NOT_REPRODUCED, f"out of memory at {min(lost):,}", mode)
    if lost and nearest(int(limit), fitting) is not None:
        return _told(curve, Answer.REPRODUCED, f"out of memory from {min(lost):,}", mode)
    return _told(curve, Answer.CANNOT_TELL, "where memory runs out was not measured", mode)


def throughput(bench: Bench, clause: Clause, mode: str) -> Judgement:
    """The most core FLOPs per second of any length, in TFLOP/s, forward, at level core.

    Judged on the device of the claim alone; around the core other work is timed too.
    """
    if bench.level is not Level.CORE or mode != Mode.INFERENCE:
        raise OutOfScope("a rate is judged forward, at level core")
    curve = _curve(bench, clause, mode)
    time, work = curve.logs("time"), curve.logs("core_flops")["y"]
    if time.empty:
        raise OutOfScope(f"{curve.series} was not measured")
    rates = interval(time.assign(y=work.loc[time.index] - np.log(1e12) - time["y"]))
    best = rates.iloc[int(rates["y"].argmax())]
    told = number(best, f"TFLOP/s of {curve.series}, {mode}", int(str(best.name)))
    return compared(best, relation(clause), told, [int(n) for n in rates.index])


def no_causal_form(bench: Bench, clause: Clause, mode: str) -> Judgement:
    """The card of A, as stored with the sweep, has no causal form; measured is nothing."""
    (subject,) = clause.call.arguments
    assert isinstance(subject, Subject)
    card = bench.cards.get(subject.mechanism)
    if card is None:
        raise OutOfScope(f"{subject.mechanism} is not in the sweep")
    never = card.causality is Causality.NEVER
    answer = Answer.REPRODUCED if never else Answer.NOT_REPRODUCED
    return Judgement(answer=answer, why=f"causal form of {card.mechanism}: {card.causality}")


def _curve(bench: Bench, clause: Clause, mode: str) -> Curve:
    subject = clause.call.arguments[0]
    assert isinstance(subject, Subject)
    return bench.curve(subject, mode)


def _limit(clause: Clause) -> int:
    assert clause.lengths is not None, f"{clause.call.name} needs a length"
    return clause.lengths.values[0]


def _unless_lost(
    curve: Curve, limit: int, mode: str, measured: Answer, unknown: Answer
) -> Judgement:
    """What follows where memory did not run out: was the length measured?"""
    at = nearest(limit, [int(n) for n in curve.rows.index])
    if at is None:
        raise OutOfScope(f"{limit:,} is not in the sweep")
    if at in curve.fitting:
        return _told(curve, measured, f"fits at {at:,}", mode)
    row = curve.rows.loc[at]
    return _told(curve, unknown, f"{row['outcome']} at {at:,}: {row['reason']}", mode)


def _told(curve: Curve, answer: Answer, why: str, mode: str) -> Judgement:
    """The answer with the longest length that fitted."""
    fitting = curve.fitting
    what = f"longest length measured of {curve.series}, {mode}"
    numbers = (Number(what=what, unit=Unit.COUNT, value=max(fitting)),) if fitting else ()
    lengths = tuple(int(n) for n in curve.rows.index)
    return Judgement(answer=answer, why=f"{curve.series}: {why}", numbers=numbers, lengths=lengths)
