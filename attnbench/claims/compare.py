"""What the predicates of claims share: ratios of two curves, and numbers against relations."""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from attnbench.claims.bench import Bench, Curve, OutOfScope, chosen, interval
from attnbench.claims.claim import Call, Clause, Lengths, Relation, Sign, Subject
from attnbench.claims.outcome import Answer, Judgement, Number
from attnbench.metrics import Unit

# "equal" allows this factor either way. Machines, code and sizes differ: where two of the papers
# print the same ratio (Linformer and Longformer over the Transformer), they agree within it in
# four of five pairs, and within 1.5 in hardly more than half
FACTOR = 2.0


def compared(
    row: pd.Series, relation: Relation, number: Number, lengths: Iterable[int]
) -> Judgement:
    """A log with its interval against a relation; strict and weak inequalities are judged alike."""
    low, high = _bounds(relation)
    if not np.isfinite(row["low"]):
        answer, why = Answer.CANNOT_TELL, "no interval"
    elif row["low"] >= low and row["high"] <= high:
        answer, why = Answer.REPRODUCED, ""
    elif row["high"] < low or row["low"] > high:
        answer, why = Answer.NOT_REPRODUCED, f"the claim is {relation}"
    else:
        answer, why = Answer.CANNOT_TELL, f"the interval reaches both sides of {relation}"
    at = tuple(sorted({int(n) for n in lengths}))
    return Judgement(answer=answer, why=why, numbers=(number,), lengths=at)


def _bounds(relation: Relation) -> tuple[float, float]:
    """Between which logs the relation holds."""
    first, last = np.log([float(relation.values[0]), float(relation.values[-1])])
    match relation.sign:
        case Sign.EQUAL:
            low, high = first - np.log(FACTOR), first + np.log(FACTOR)
            return (max(low, 0.0), high) if first > 0 else (low, min(high, 0.0) if first else high)
        case Sign.AT_MOST | Sign.BELOW:
            return -np.inf, first
        case Sign.AT_LEAST | Sign.ABOVE:
            return first, np.inf
    return first, last


def relation(clause: Clause) -> Relation:
    assert isinstance(clause.relation, Relation), f"{clause.call.name} needs a relation"
    return clause.relation


def pair(bench: Bench, call: Call, mode: str) -> tuple[Curve, Curve, str]:
    """The two curves of a call and the quantity that it compares."""
    a, b, *_ = call.arguments
    assert isinstance(a, Subject)
    assert isinstance(b, Subject)
    return bench.curve(a, mode), bench.curve(b, mode), quantity_of(call)


def quantity_of(call: Call) -> str:
    """The quantity that a call compares."""
    if call.name in ("ratio", "same"):
        return str(call.arguments[2])
    return "memory" if call.name in ("less_memory", "memory_saving") else "time"


def log_ratios(a: Curve, b: Curve, quantity: str, lengths: Lengths | None) -> pd.DataFrame:
    """Log of a over b at the lengths of the claim."""
    found = a.over(b, quantity)
    if found.empty:
        raise OutOfScope(f"{a.series} and {b.series} have no {quantity} at a common length")
    return found.loc[chosen(lengths, list(found.index))]


def mean(found: pd.DataFrame) -> pd.DataFrame:
    """One row: the mean of independent logs, with its interval."""
    error = float(np.sqrt((found["se"] ** 2).sum(skipna=False)) / len(found))
    return interval(
        pd.DataFrame({"y": [found["y"].mean()], "se": [error], "df": [found["df"].min()]})
    )


def numbers(
    found: pd.DataFrame, a: Curve, b: Curve, quantity: str, mode: str
) -> tuple[Number, ...]:
    """The ratios of a over b behind their logs, one a row."""
    what = f"{quantity} of {a.series} over {b.series}, {mode}"
    return tuple(number(row, what, int(str(n))) for n, row in found.iterrows())


def number(row: pd.Series, what: str, length: int | None = None, unit: Unit = Unit.RATIO) -> Number:
    """The number whose logarithm a row holds."""
    value, low, high = (float(np.exp(row[name])) for name in ("y", "low", "high"))
    return Number(what=what, unit=unit, value=value, low=low, high=high, length=length)
