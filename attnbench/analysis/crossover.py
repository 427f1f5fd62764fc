"""The length from which one series is cheaper than another, between measured lengths.

The difference of log costs is interpolated linearly in log N between the lengths that both were
measured at. Its 95 % band is taken at each length by itself, so the interval runs from where the
band first reaches below zero for good to where all of it lies below zero for good.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import permutations

import numpy as np
import pandas as pd

from attnbench.analysis.estimate import LEVEL
from attnbench.analysis.student import quantile


class Answer(StrEnum):
    """From which length the one is cheaper than the other."""

    FROM = "from"
    ALWAYS = "always"
    NEVER = "never within the sweep"
    UNCLEAR = "cannot tell"


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """An answer; lengths are known for `FROM` alone.

    An end of the interval, or the length itself, that lies at the shortest length that both were
    measured at may in truth lie before it.
    """

    answer: Answer
    length: float = np.nan
    low: float = np.nan
    high: float = np.nan


def crossovers(
    summary: pd.DataFrame, metric: str = "time_s", baseline: str | None = None
) -> pd.DataFrame:
    """One row per mode and ordered pair of series, or per series against `baseline`.

    Columns: mode, metric, series, other, answer, length, low, high (of the length), from_len,
    to_len (of the lengths both were measured at). `series` is the cheaper one from `length` on.
    """
    rows = []
    for mode, cases in summary.groupby("mode", sort=False):
        curves = {name: _curve(found, metric) for name, found in cases.groupby("series")}
        names = [name for name in dict.fromkeys(cases["series"]) if len(curves[name])]
        for one, other in _pairs(names, baseline):
            lengths, differences, errors, df = _difference(curves[one], curves[other])
            found = crossing(lengths, differences, errors, df)
            ends = (int(lengths[0]), int(lengths[-1])) if len(lengths) else (0, 0)
            answer = (str(found.answer), found.length, found.low, found.high)
            rows.append((mode, metric, one, other, *answer, *ends))
    columns = "mode metric series other answer length low high from_len to_len"
    return pd.DataFrame(rows, columns=columns.split())


def crossing(
    lengths: np.ndarray, differences: np.ndarray, errors: np.ndarray, df: float
) -> Crossing:
    """Where log differences, each with a standard error, fall below zero for good.

    Errors that are not known (NaN) leave only "cannot tell".
    """
    if not len(lengths) or not np.isfinite(errors).all():
        return Crossing(answer=Answer.UNCLEAR)
    half = quantile(LEVEL, df) * errors
    upper, lower = differences + half, differences - half
    if (upper < 0).all():
        return Crossing(answer=Answer.ALWAYS)
    if lower[-1] > 0 or (differences[-1] == 0 and not half[-1]):
        return Crossing(answer=Answer.NEVER)
    if upper[-1] >= 0:
        return Crossing(answer=Answer.UNCLEAR)
    x = np.log(lengths)
    low, length, high = (np.exp(_last_zero(x, y)) for y in (lower, differences, upper))
    return Crossing(answer=Answer.FROM, length=float(length), low=float(low), high=float(high))


def _curve(rows: pd.DataFrame, metric: str) -> np.ndarray:
    """Length, log cost, its error and its degrees of freedom; counted metrics have no error."""
    known = rows[rows[metric] > 0].sort_values("seq_len")
    exact = np.zeros(len(known)), np.full(len(known), np.inf)
    timed = (known["time_log_se"], known["time_df"]) if metric.endswith("_s") else exact
    return np.array([known["seq_len"], np.log(known[metric]), *timed], float).T


def _difference(
    one: np.ndarray, other: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Lengths of both curves, log cost of the one over the other, its errors, the fewest df."""
    lengths, i, j = np.intersect1d(one[:, 0], other[:, 0], return_indices=True)
    a, b = one[i], other[j]
    df = np.concatenate([a[:, 3], b[:, 3]]).min(initial=np.inf)
    return lengths, a[:, 1] - b[:, 1], np.hypot(a[:, 2], b[:, 2]), float(df)


def _pairs(names: Iterable[str], baseline: str | None) -> list[tuple[str, str]]:
    pairs = list(permutations(names, 2))
    return [pair for pair in pairs if baseline is None or pair[1] == baseline]


def _last_zero(x: np.ndarray, y: np.ndarray) -> float:
    """Where y, negative at its end, last comes down through zero; the first x if it never does."""
    above = np.flatnonzero(y >= 0)
    if not len(above):
        return float(x[0])
    i = above[-1]
    return float(x[i] + (x[i + 1] - x[i]) * y[i] / (y[i] - y[i + 1]))
