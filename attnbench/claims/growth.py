"""Definitions of the predicates about how a cost grows with length, and where two costs cross.

Only the length varies within a sweep, so of a formula such as N*K*d the part in N is judged: every
other symbol is a constant. FLOPs are exact, those of the cards as stored with the sweep, of the
core alone and of one layer and sequence.
"""

import numpy as np
import pandas as pd

from attnbench.analysis.crossover import Answer as Crossed
from attnbench.analysis.crossover import Crossing, find_crossing
from attnbench.analysis.curves import LogCurve
from attnbench.analysis.scaling import BEND, FEWEST
from attnbench.claims.bench import Bench, Curve, OutOfScope, interval
from attnbench.claims.claim import Clause, Factor, Formula, Relation, Sign, Subject
from attnbench.claims.compare import compared, log_ratios, number, pair, relation
from attnbench.claims.outcome import Answer, Judgement, Number
from attnbench.metrics import Unit

# an order that is still being approached: by the last step the slope is off by so much less
NEARER = 0.75


def crossover(bench: Bench, clause: Clause, mode: str) -> Judgement:
    """The length from which B takes less time than A, for good, interpolated in log–log.

    `in [x, y]`: A is faster at x and B at y; reproduced if the interval of the crossing lies within
    them. `<= x`: B is faster at x already and beyond; reproduced if the interval ends by x, or B
    wins at every length measured and one of them is no more than x. `= x`: within a factor of 2.
    A sweep that ends before x, or begins beyond y, does not speak of it.
    """
    a, b, _ = pair(bench, clause.call, mode)
    # the ends come with the relation, so that all lengths of both count
    found = log_ratios(b, a, "time", None)
    first, last = int(found.index[0]), int(found.index[-1])
    asked = relation(clause)
    low, high = _bracket(asked)
    _reaches(asked, first, last, low, high)
    its = find_crossing(
        LogCurve(
            lengths=found.index.to_numpy(float),
            logs=found["y"].to_numpy(),
            errors=found["se"].to_numpy(),
            df=np.full(len(found), found["df"].min()),
        )
    )
    what = f"length from which {b.series} is faster than {a.series}, {mode}"
    told = Number(what=what, unit=Unit.COUNT, value=its.length, low=its.low, high=its.high)
    # an interval that reaches the shortest length may begin before it
    begin = its.low if its.low > first else 0.0
    answer, why = _crossed(its, begin, first, last, low, high)
    numbers = (told,) if its.answer is Crossed.FROM else _ends(found, a, b, mode)
    lengths = tuple(int(n) for n in found.index)
    return Judgement(answer=answer, why=why, numbers=numbers, lengths=lengths)


def order(bench: Bench, clause: Clause, mode: str) -> Judgement:
    """The cost grows as the formula does, over the last four lengths that ran in one form.

    The terms of the formula are fitted with factors that are not negative. Reproduced if every
    slope between neighbouring lengths is that of the fit within 0.1 and the leading term has a
    part; not reproduced if one is off by more and does not come nearer. `slope(A, q) = p` is the
    order N^p. A formula without N is out of scope.
    """
    subject, quantity = clause.call.arguments
    assert isinstance(subject, Subject)
    powers = _powers(clause.relation)
    curve = bench.curve(subject, mode)
    logs = _tail(curve, str(quantity))
    what = f"exponent of N of {quantity} of {curve.series}"
    what += "" if str(quantity).endswith("flops") else f", {mode}"
    lengths = tuple(int(n) for n in logs.index)
    if len(logs) < 2:
        raise OutOfScope(f"{curve.series} has no {quantity} at two lengths")
    slopes = _slopes(logs)
    told = Number(
        what=what,
        unit=Unit.EXPONENT,
        value=float(np.ptp(logs["y"]) / np.ptp(np.log(logs.index))),
        low=float(slopes["low"].min()),
        high=float(slopes["high"].max()),
    )
    answer, why = _ordered(logs, slopes, powers)
    return Judgement(answer=answer, why=why, numbers=(told,), lengths=lengths)


def maps_over_core(bench: Bench, clause: Clause, mode: str) -> Judgement:
    """FLOPs of the linear maps over FLOPs of the core, exact; the least of all lengths counts."""
    (subject,) = clause.call.arguments
    assert isinstance(subject, Subject)
    curve = bench.curve(subject, mode)
    logs = interval(curve.logs("projection_flops"))
    logs = logs.assign(**{c: logs[c] - curve.logs("core_flops")["y"] for c in ("y", "low", "high")})
    row = logs.dropna().sort_values("y").iloc[0]
    told = number(row, f"FLOPs of the maps over those of the core of {curve.series}")
    return compared(row, relation(clause), told, [int(n) for n in logs.index])


def _bracket(asked: Relation) -> tuple[float, float]:
    """Between which lengths the crossing is claimed to lie."""
    values = [float(value) for value in asked.values]
    match asked.sign:
        case Sign.AT_MOST:
            return 0.0, values[0]
        case Sign.EQUAL:
            return values[0] / 2, values[0] * 2
    return values[0], values[-1]


def _reaches(asked: Relation, first: int, last: int, low: float, high: float) -> None:
    """Raises `OutOfScope` if the lengths measured cannot say whether a crossing lies there."""
    if last < max(low, high if asked.sign is Sign.AT_MOST else 0) / 1.1 or first > high * 1.1:
        raise OutOfScope(f"no length near {asked}: both measured from {first:,} to {last:,}")


def _crossed(
    its: Crossing, begin: float, first: int, last: int, low: float, high: float
) -> tuple[Answer, str]:
    match its.answer:
        case Crossed.UNCLEAR:
            return Answer.CANNOT_TELL, "the intervals overlap at the longest length"
        case Crossed.NEVER:
            beyond = last >= high / 1.1
            why = f"not faster up to {last:,}"
            return (Answer.NOT_REPRODUCED if beyond else Answer.CANNOT_TELL), why
        case Crossed.ALWAYS if low > 0:
            before = first <= low * 1.1
            why = f"faster from {first:,} already"
            return (Answer.NOT_REPRODUCED if before else Answer.CANNOT_TELL), why
        case Crossed.ALWAYS:
            return Answer.REPRODUCED, f"faster from {first:,} already"
    if low <= begin and its.high <= high:
        return Answer.REPRODUCED, ""
    if its.high < low or begin > high:
        return Answer.NOT_REPRODUCED, ""
    return Answer.CANNOT_TELL, "the interval reaches both sides"


def _ends(found: pd.DataFrame, a: Curve, b: Curve, mode: str) -> tuple[Number, ...]:
    """The ratios at the first and last length, which say who is faster throughout."""
    what = f"time of {b.series} over {a.series}, {mode}"
    rows = found.iloc[[0, -1]] if len(found) > 1 else found
    return tuple(number(row, what, int(str(n))) for n, row in rows.iterrows())


def _powers(formula: Relation | Formula | None) -> list[tuple[float, float]]:
    """Powers of N and of log N of each term."""
    if isinstance(formula, Relation):
        return [(float(formula.values[0]), 0.0)]
    assert isinstance(formula, Formula)
    found = [(_power(term, log=False), _power(term, log=True)) for term in formula.terms]
    if not any(power or log for power, log in found):
        raise OutOfScope(f"a sweep varies N alone, and {str(formula)[2:]} does not hold it")
    return found


def _power(term: tuple[Factor, ...], *, log: bool) -> float:
    return sum(f.power for f in term if f.symbol == "N" and f.log is log)


def _tail(curve: Curve, quantity: str) -> pd.DataFrame:
    """The longest lengths that ran in one form: the straight end of a counted cost."""
    logs = curve.logs(quantity)
    form = curve.rows["form"].loc[logs.index]
    changes = np.flatnonzero((form != form.shift(-1)).to_numpy())
    start = changes[-2] + 1 if len(changes) > 1 else 0
    return logs.iloc[max(start, len(logs) - FEWEST) :]


def _slopes(logs: pd.DataFrame) -> pd.DataFrame:
    """The slope between neighbouring lengths with its interval."""
    widths = np.diff(np.log(logs.index.to_numpy(float)))
    se, df = logs["se"].to_numpy(), logs["df"].to_numpy()
    return interval(
        pd.DataFrame(
            {
                "y": np.diff(logs["y"]) / widths,
                "se": np.hypot(se[1:], se[:-1]) / widths,
                "df": np.minimum(df[1:], df[:-1]),
            }
        )
    )


def _ordered(
    logs: pd.DataFrame, slopes: pd.DataFrame, powers: list[tuple[float, float]]
) -> tuple[Answer, str]:
    fitted, leads = _fit(logs, powers)
    off = slopes["y"].to_numpy() - fitted
    spread = (slopes["high"] - slopes["y"]).to_numpy()
    if len(logs) < FEWEST:
        return Answer.CANNOT_TELL, f"too few lengths of one form: {len(logs)} of at least {FEWEST}"
    if not np.isfinite(spread).all():
        return Answer.CANNOT_TELL, "no interval"
    if leads and (np.abs(off) + spread <= BEND).all():
        return Answer.REPRODUCED, ""
    if (np.abs(off) - spread > BEND).any() or not leads:
        nearer = leads and abs(off[-1]) <= NEARER * abs(off[0])
        wanted = f"the formula has {fitted[-1]:.2f} there"
        return (Answer.CANNOT_TELL, "still bending") if nearer else (Answer.NOT_REPRODUCED, wanted)
    return Answer.CANNOT_TELL, "the intervals reach both sides"


def _fit(logs: pd.DataFrame, powers: list[tuple[float, float]]) -> tuple[np.ndarray, bool]:
    """Slopes of the formula fitted to the costs, and whether its leading term has a part in it."""
    n = logs.index.to_numpy(float)
    terms = np.array([n**power * np.log(n) ** log for power, log in powers])
    cost = np.exp(logs["y"].to_numpy())
    leading = max(range(len(powers)), key=lambda i: powers[i])
    kept = list(range(len(powers)))
    while True:
        factors = np.linalg.lstsq((terms[kept] / cost).T, np.ones(len(n)), rcond=None)[0]
        if len(kept) == 1 or (factors > 0).all():
            break
        kept.remove(kept[int(np.argmin(factors))])
    steps = np.diff(np.log(factors @ terms[kept])) / np.diff(np.log(n))
    return steps, leading in kept
