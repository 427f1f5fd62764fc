"""Definitions of the predicates that compare two mechanisms, or one at two lengths.

Each compares curves of one mode. A is the first mechanism named and B the second. Where an interval
is meant it is that of 95 %, and it decides: a claim is reproduced only if all of the interval lies
on the claimed side, not reproduced only if all of it lies on the other, and else cannot be told.
Lengths at which one of the two was not measured are not compared; those that were are shown.
"""

from dataclasses import replace

import numpy as np
import pandas as pd

from attnbench.claims.bench import Bench, OutOfScope, difference, nearest
from attnbench.claims.claim import Clause, Subject
from attnbench.claims.compare import (
    compared,
    log_ratios,
    mean,
    number,
    numbers,
    pair,
    relation,
)
from attnbench.claims.outcome import Answer, Judgement, everywhere, too_few

# "no significant difference": a factor that a reader of a logarithmic figure would not see
SAME = 1.1


def faster(bench: Bench, clause: Clause, mode: str) -> Judgement:
    """A takes less time than B, at every length of the claim that both were measured at."""
    return _less(bench, clause, mode, "time")


def less_memory(bench: Bench, clause: Clause, mode: str) -> Judgement:
    """A needs less memory than B, at every length of the claim that both were weighed at."""
    return _less(bench, clause, mode, "memory")


def same(bench: Bench, clause: Clause, mode: str) -> Judgement:
    """A and B differ by less than a tenth, at every length that both were measured at.

    Reproduced if each interval of the ratio lies within a tenth of 1, not reproduced if one lies
    wholly outside.
    """
    a, b, quantity = pair(bench, clause.call, mode)
    found = log_ratios(a, b, quantity, clause.lengths)
    limit = np.log(SAME)
    # above zero where the ratio is within the factor, whichever end is nearer to it
    signed = pd.DataFrame(
        {
            "low": limit - np.maximum(found["high"].abs(), found["low"].abs()),
            "high": limit - np.where(found["low"] > 0, found["low"], -found["high"]).clip(0),
        },
        index=found.index,
    )
    return everywhere(signed, numbers(found, a, b, quantity, mode), clause.lengths)


def ratio(bench: Bench, clause: Clause, mode: str) -> Judgement:
    """The quantity of A over that of B, of one sequence, compared with a number.

    `speedup` is the time of B over that of A, `memory_saving` the memory of B over that of A. Over
    several lengths the geometric mean counts. "=" allows a factor of two either way, but not
    beyond 1: a claimed gain is not reproduced by a loss.
    """
    if clause.lengths is None:
        raise OutOfScope("the source prints no length")
    a, b, quantity = pair(bench, clause.call, mode)
    if clause.call.name != "ratio":
        a, b = b, a
    found = log_ratios(a, b, quantity, clause.lengths)
    row = mean(found).iloc[0]
    what = f"{quantity} of {a.series} over {b.series}, {mode}"
    at = int(found.index[0]) if len(found) == 1 else None
    verdict = compared(row, relation(clause), number(row, what, at), found.index)
    few = too_few(len(found), clause.lengths)
    if few is not None and verdict.answer is not Answer.CANNOT_TELL:
        return replace(verdict, answer=Answer.CANNOT_TELL, why=few)
    return verdict


def growth(bench: Bench, clause: Clause, mode: str) -> Judgement:
    """The quantity of one sequence at the second length over that at the first.

    Compared with a number as a ratio is.
    """
    quantity, subject, _, first, last = clause.call.arguments
    assert isinstance(subject, Subject)
    assert isinstance(first, int)
    assert isinstance(last, int)
    curve = bench.curve(subject, mode)
    logs = curve.logs(str(quantity))
    ends = [nearest(n, list(logs.index)) for n in (first, last)]
    if ends[0] is None or ends[1] is None:
        raise OutOfScope(f"{curve.series} was not measured at both {first:,} and {last:,}")
    step = difference(*(logs.loc[[n]].reset_index(drop=True) for n in (ends[1], ends[0])))
    what = f"{quantity} of {curve.series}, {mode}, {ends[0]:,} to {ends[1]:,}"
    return compared(step.iloc[0], relation(clause), number(step.iloc[0], what), (ends[0], ends[1]))


def _less(bench: Bench, clause: Clause, mode: str, quantity: str) -> Judgement:
    a, b, _ = pair(bench, clause.call, mode)
    found = log_ratios(b, a, quantity, clause.lengths)
    return everywhere(found, numbers(found, b, a, quantity, mode), clause.lengths)
