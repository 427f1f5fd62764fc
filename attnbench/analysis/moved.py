"""Crossovers of two sweeps that cannot be the same: their 95 % intervals do not meet.

Each answer is an interval of lengths. A series that is always cheaper crosses at or before the
shortest length, one that never is crosses after the longest, and "cannot tell" may cross anywhere.
Only lengths that both sweeps timed are used, so a longer sweep moves nothing, and only sweeps that
repeated their rounds: an interval of one round does not include what a restart changes. A
crossover is a ratio of times of one sweep, so sweeps of different machines may be asked for theirs.
"""

import numpy as np
import pandas as pd

from attnbench.analysis.compare import matched, repeated
from attnbench.analysis.crossover import Answer, crossovers
from attnbench.analysis.ratios import Ratios
from attnbench.errors import UnknownMechanism
from attnbench.records import Sweep

PAIR = ("mode", "series", "other")
FOUND = ("answer", "length", "low", "high", "from_len", "to_len")


def moved(first: Sweep, second: Sweep, against: str | None = None) -> pd.DataFrame:
    """One row per mode and pair whose crossover moved; `against` is a mechanism or a series.

    Columns: mode, series, other, then answer, length, low, high, from_len and to_len of each
    sweep with `_1` and `_2`. Raises `UnknownMechanism` if the first sweep lacks `against`.
    """
    one, two = matched(first), matched(second)
    baseline = named(one, against) if against else None
    shared = _timed(one) & _timed(two)
    # the second's series take the first's names: a form may have changed along one of them
    names = dict(zip(one["match"], one["series"], strict=True))
    one, two = (cases[cases["match"].isin(shared)] for cases in (one, two))
    renamed = two.assign(series=two["match"].map(names))
    found = [
        Ratios(first),
        Ratios(second).named(dict(zip(two["series"], renamed["series"], strict=False))),
    ]
    if not shared:
        return pd.DataFrame(columns=[*PAIR, *(f"{name}_{n}" for n in (1, 2) for name in FOUND)])
    tables = [
        crossovers(cases, ratios=ratios)[[*PAIR, *FOUND]]
        for cases, ratios in zip((one, renamed), found, strict=True)
    ]
    if baseline is not None:
        tables = [of(found, baseline) for found in tables]
    both = tables[0].merge(tables[1], on=list(PAIR), suffixes=("_1", "_2"))
    apart = [_apart(row) for _, row in both.iterrows()]
    return _once(both[np.array(apart, bool)]).reset_index(drop=True)


def named(cases: pd.DataFrame, name: str) -> str:
    """The series of that name, or the first of the mechanism of that name.

    Raises `UnknownMechanism` with the names that there are.
    """
    if name in set(cases["series"]):
        return name
    of = cases.loc[cases["mechanism"] == name, "series"]
    if not len(of):
        known = ", ".join(dict.fromkeys(cases["mechanism"])) or "none"
        raise UnknownMechanism(f"no mechanism {name!r} in the sweep; there are: {known}")
    return str(of.iloc[0])


def of(crossovers: pd.DataFrame, series: str | None) -> pd.DataFrame:
    """The pairs with that series, in both orders."""
    return crossovers[(crossovers["series"] == series) | (crossovers["other"] == series)]


def _timed(cases: pd.DataFrame) -> set[str]:
    return set(cases.loc[repeated(cases), "match"])


def _apart(row: pd.Series) -> bool:
    (low_1, high_1), (low_2, high_2) = (_interval(row, end) for end in ("_1", "_2"))
    return bool(high_1 < low_2 or high_2 < low_1)


def _interval(row: pd.Series, end: str) -> tuple[float, float]:
    """Where the crossing lies for certain, in tokens."""
    shortest, longest = row["from_len" + end], row["to_len" + end]
    match row["answer" + end]:
        case Answer.ALWAYS:
            return 0.0, shortest
        case Answer.NEVER:
            return longest, np.inf
        case Answer.FROM:
            return row["low" + end], row["high" + end]
    return 0.0, np.inf


def _once(rows: pd.DataFrame) -> pd.DataFrame:
    """Of a pair in both orders the one that has a length, else the first."""
    crosses = (rows["answer_1"] == Answer.FROM) | (rows["answer_2"] == Answer.FROM)
    ordered = rows[crosses.to_numpy()], rows[~crosses.to_numpy()]
    both = pd.concat(ordered)
    pairs = [
        (mode, *sorted(pair))
        for mode, *pair in zip(both["mode"], both["series"], both["other"], strict=True)
    ]
    return both[~pd.Series(pairs, index=both.index, dtype=object).duplicated()].sort_index()
