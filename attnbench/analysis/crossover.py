"""Two series of a sweep: speed-ups, and the length from which one is cheaper than the other.

For a crossover the log ratio of costs is interpolated linearly in log N between the lengths at
which both were measured. The confidence interval of the crossover starts where the 95 % band of the
ratio last comes below zero in part, and ends where it last comes below zero as a whole.
"""

from dataclasses import dataclass
from enum import StrEnum
from itertools import permutations

import numpy as np
import pandas as pd

from attnbench.analysis.curves import LogCurve, cost_curve
from attnbench.analysis.estimate import IntervalKind
from attnbench.analysis.ratios import Ratios


class Crossed(StrEnum):
    """Whether, and from which length, one series is cheaper than another."""

    FROM = "from"
    ALWAYS = "always"
    NEVER = "never within the sweep"
    UNCLEAR = "cannot tell"


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """An answer; lengths are known for `FROM` alone.

    A length or end of the interval at the shortest length measured may in fact lie before it.
    """

    answer: Crossed
    length: float = np.nan
    low: float = np.nan
    high: float = np.nan


def crossovers(
    summary: pd.DataFrame,
    metric: str = "time_s",
    baseline: str | None = None,
    ratios: Ratios | None = None,
) -> pd.DataFrame:
    """One row per mode and ordered pair of series; only pairs with `baseline`, if it is given.

    Columns: mode, metric, series, other, answer, length, low, high (of the length), from_len,
    to_len (of the lengths at which both were measured). `series` is the cheaper one from `length`
    on. `ratios` are those of the sweep, and are used where two series took turns.
    """
    rows = []
    for mode, cases in summary.groupby("mode", sort=False):
        known = cases[cases[metric] > 0]
        curves = {
            str(series): cost_curve(own, metric)
            for series, own in known.groupby("series", sort=False)
        }
        for series, other in permutations(curves, 2):
            if baseline not in (None, series, other):
                continue
            log_ratio = curves[series].minus(curves[other])
            if ratios is not None and metric == "time_s":
                log_ratio, _ = ratios.in_turns(log_ratio, series, other, str(mode))
            crossing = find_crossing(log_ratio)
            ends = log_ratio.lengths[[0, -1]].astype(int) if len(log_ratio) else (0, 0)
            answer = (str(crossing.answer), crossing.length, crossing.low, crossing.high)
            rows.append((mode, metric, series, other, *answer, *map(int, ends)))
    columns = "mode metric series other answer length low high from_len to_len"
    return pd.DataFrame(rows, columns=columns.split())


def find_crossing(log_ratio: LogCurve) -> Crossing:
    """Where a log ratio of costs falls below zero for good.

    With unknown errors (NaN) the answer is "cannot tell".
    """
    logs, half = log_ratio.logs, log_ratio.half
    if not len(log_ratio) or not np.isfinite(half).all():
        return Crossing(answer=Crossed.UNCLEAR)
    upper, lower = logs + half, logs - half
    if (upper < 0).all():
        return Crossing(answer=Crossed.ALWAYS)
    if lower[-1] > 0 or (logs[-1] == 0 and not half[-1]):
        return Crossing(answer=Crossed.NEVER)
    if upper[-1] >= 0:
        return Crossing(answer=Crossed.UNCLEAR)
    x = np.log(log_ratio.lengths)
    low, length, high = (np.exp(_last_zero(x, y)) for y in (lower, logs, upper))
    return Crossing(answer=Crossed.FROM, length=float(length), low=float(low), high=float(high))


def speedups(summary: pd.DataFrame, baseline: str, ratios: Ratios | None = None) -> pd.DataFrame:
    """The speed-up of every other series over `baseline`, at each length where both were timed.

    Columns: series, mode, seq_len, ratio (time of `baseline` over time), low, high (95 %
    confidence interval), paired (whether the two took turns).
    """
    columns = ["series", "mode", "seq_len", "ratio", "low", "high", "paired"]
    table = []
    for mode, cases in summary.groupby("mode", sort=False):
        base = cost_curve(cases[cases["series"] == baseline], "time_s")
        for series, rows in cases[cases["series"] != baseline].groupby("series", sort=False):
            logs = base.minus(cost_curve(rows, "time_s"))
            paired = np.zeros(len(logs), bool)
            if ratios is not None:
                logs, paired = ratios.in_turns(logs, baseline, str(series), str(mode))
            values = map(np.exp, (logs.logs, logs.low, logs.high))
            for row in zip(logs.lengths.astype(int), *values, paired, strict=True):
                table.append((series, mode, *row))
    return pd.DataFrame(table, columns=columns)


def moved_crossovers(
    cases: tuple[pd.DataFrame, pd.DataFrame],
    ratios: tuple[Ratios, Ratios],
    baseline: str | None = None,
) -> pd.DataFrame:
    """Crossovers of two sweeps whose 95 % confidence intervals do not overlap.

    Each answer is an interval of lengths: a series that is always cheaper crosses at or before the
    shortest length, one that never is crosses after the longest, and "cannot tell" may cross
    anywhere. Only lengths that both sweeps timed in several rounds count, so a longer sweep moves
    no crossover. Crossovers depend on ratios within a sweep, so the machines may differ.

    `cases` and `ratios` are those of the two sweeps; `baseline` is a series of the first. Columns:
    mode, series, other, then answer, length, low, high, from_len and to_len of each sweep with
    the suffixes _1 and _2.
    """
    repeated = [set(c.loc[c["interval_kind"] == IntervalKind.ROUNDS, "match"]) for c in cases]
    first, second = (c[c["match"].isin(set.intersection(*repeated))] for c in cases)
    # series of the second sweep take the names of the first, as a form may have changed along one
    names = second["match"].map(dict(zip(first["match"], first["series"], strict=True)))
    renamed = ratios[1].named(dict(zip(second["series"], names, strict=True)))
    tables = (
        crossovers(first, baseline=baseline, ratios=ratios[0]),
        crossovers(second.assign(series=names), baseline=baseline, ratios=renamed),
    )
    on = ["mode", "metric", "series", "other"]
    both = tables[0].merge(tables[1], on=on, suffixes=("_1", "_2")).drop(columns="metric")
    moved = []
    for _, row in both.iterrows():
        (low_1, high_1), (low_2, high_2) = _bounds(row, "_1"), _bounds(row, "_2")
        moved.append(high_1 < low_2 or high_2 < low_1)
    return _one_order(both[np.array(moved, bool)]).reset_index(drop=True)


def _bounds(row: pd.Series, end: str) -> tuple[float, float]:
    """The lengths between which the crossing lies."""
    match row["answer" + end]:
        case Crossed.ALWAYS:
            return 0.0, row["from_len" + end]
        case Crossed.NEVER:
            return row["to_len" + end], np.inf
        case Crossed.FROM:
            return row["low" + end], row["high" + end]
    return 0.0, np.inf


def _one_order(rows: pd.DataFrame) -> pd.DataFrame:
    """One of the two orders of each pair: that with a length, else the first."""
    crosses = (rows["answer_1"] == Crossed.FROM) | (rows["answer_2"] == Crossed.FROM)
    ordered = pd.concat([rows[crosses], rows[~crosses]])
    columns = (ordered[name] for name in ("mode", "series", "other"))
    pairs = [(mode, *sorted(pair)) for mode, *pair in zip(*columns, strict=True)]
    return ordered[~pd.Series(pairs, ordered.index, dtype=object).duplicated()].sort_index()


def _last_zero(x: np.ndarray, y: np.ndarray) -> float:
    """Where y, negative at the end, last falls through zero; the first x if it never does."""
    above = np.flatnonzero(y >= 0)
    if not len(above):
        return float(x[0])
    i = above[-1]
    return float(x[i] + (x[i + 1] - x[i]) * y[i] / (y[i] - y[i + 1]))
