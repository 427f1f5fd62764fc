"""Two series of a sweep: speed-ups, and the length from which one is cheaper than the other.

For a crossover the log ratio of costs is interpolated linearly in log N between the lengths that
both were measured at. Its 95 % band is taken at each length by itself, so the interval runs from
where the band first reaches below zero for good to where all of it lies below zero for good.
"""

from dataclasses import dataclass
from enum import StrEnum
from itertools import permutations

import numpy as np
import pandas as pd

from attnbench.analysis.curves import LogCurve, cost_curve
from attnbench.analysis.estimate import Kind
from attnbench.analysis.ratios import Ratios


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
    summary: pd.DataFrame,
    metric: str = "time_s",
    baseline: str | None = None,
    ratios: Ratios | None = None,
) -> pd.DataFrame:
    """One row per mode and ordered pair of series, or per series against `baseline`.

    Columns: mode, metric, series, other, answer, length, low, high (of the length), from_len,
    to_len (of the lengths both were measured at). `series` is the cheaper one from `length` on.
    `ratios` are those of the sweep: where two series took turns, theirs count.
    """
    rows = []
    for mode, cases in summary.groupby("mode", sort=False):
        known = cases[cases[metric] > 0]
        curves = {
            str(series): cost_curve(rows, metric)
            for series, rows in known.groupby("series", sort=False)
        }
        for one, other in permutations(curves, 2):
            if baseline not in (None, other):
                continue
            log_ratio = curves[one].minus(curves[other])
            if ratios is not None and metric == "time_s":
                log_ratio, _ = ratios.in_turns(log_ratio, one, other, str(mode))
            crossing = find_crossing(log_ratio)
            ends = log_ratio.lengths[[0, -1]].astype(int) if len(log_ratio) else (0, 0)
            answer = (str(crossing.answer), crossing.length, crossing.low, crossing.high)
            rows.append((mode, metric, one, other, *answer, *map(int, ends)))
    columns = "mode metric series other answer length low high from_len to_len"
    return pd.DataFrame(rows, columns=columns.split())


def find_crossing(log_ratio: LogCurve) -> Crossing:
    """Where a log ratio of costs falls below zero for good.

    Errors that are not known (NaN) leave only "cannot tell".
    """
    logs, half = log_ratio.logs, log_ratio.half
    if not len(log_ratio) or not np.isfinite(half).all():
        return Crossing(answer=Answer.UNCLEAR)
    upper, lower = logs + half, logs - half
    if (upper < 0).all():
        return Crossing(answer=Answer.ALWAYS)
    if lower[-1] > 0 or (logs[-1] == 0 and not half[-1]):
        return Crossing(answer=Answer.NEVER)
    if upper[-1] >= 0:
        return Crossing(answer=Answer.UNCLEAR)
    x = np.log(log_ratio.lengths)
    low, length, high = (np.exp(_last_zero(x, y)) for y in (lower, logs, upper))
    return Crossing(answer=Answer.FROM, length=float(length), low=float(low), high=float(high))


def speedups(summary: pd.DataFrame, baseline: str, ratios: Ratios | None = None) -> pd.DataFrame:
    """How many times faster than one series every other is, at each length both were timed at.

    Columns: series, mode, seq_len, ratio (time of `baseline` over time), low, high (95 %
    confidence interval), paired (whether the two took turns).
    """
    tables = []
    for mode, cases in summary.groupby("mode", sort=False):
        base = cost_curve(cases[cases["series"] == baseline], "time_s")
        for series, rows in cases[cases["series"] != baseline].groupby("series", sort=False):
            found = base.minus(cost_curve(rows, "time_s"))
            paired = np.zeros(len(found), bool)
            if ratios is not None:
                found, paired = ratios.in_turns(found, baseline, str(series), str(mode))
            values = {"ratio": found.logs, "low": found.low, "high": found.high}
            table = pd.DataFrame(
                {"seq_len": found.lengths.astype(int), **values, "paired": paired}
            ).assign(series=series, mode=mode)
            table[list(values)] = np.exp(table[list(values)])
            tables.append(table)
    columns = ["series", "mode", "seq_len", "ratio", "low", "high", "paired"]
    tables = [table for table in tables if len(table)]
    return (
        pd.concat(tables, ignore_index=True)[columns] if tables else pd.DataFrame(columns=columns)
    )


def moved_crossovers(
    cases: tuple[pd.DataFrame, pd.DataFrame],
    ratios: tuple[Ratios, Ratios],
    baseline: str | None = None,
) -> pd.DataFrame:
    """Crossovers of two sweeps whose 95 % confidence intervals do not meet.

    Each answer is an interval of lengths. A series that is always cheaper crosses at or before the
    shortest length, one that never is crosses after the longest, and "cannot tell" may cross
    anywhere. Only lengths that both sweeps timed in several rounds count, so a longer sweep moves
    nothing. A crossover is a ratio of times of one sweep, so the sweeps may be of two machines.

    `cases` and `ratios` are those of the two sweeps; `baseline` is a series of the first. Columns:
    mode, series, other, then answer, length, low, high, from_len and to_len of each sweep with
    the suffixes _1 and _2.
    """
    repeated = [set(each.loc[each["interval_kind"] == Kind.ROUNDS, "match"]) for each in cases]
    first, second = (each[each["match"].isin(set.intersection(*repeated))] for each in cases)
    # the second's series take the first's names: a form may have changed along one of them
    names = second["match"].map(dict(zip(first["match"], first["series"], strict=True)))
    renamed = ratios[1].named(dict(zip(second["series"], names, strict=True)))
    tables = [
        crossovers(first, ratios=ratios[0]),
        crossovers(second.assign(series=names), ratios=renamed),
    ]
    on = ["mode", "series", "other"]
    tables = [table.drop(columns="metric") for table in tables]
    both = tables[0].merge(tables[1], on=on, suffixes=("_1", "_2"))
    if baseline is not None:
        both = both[(both["series"] == baseline) | (both["other"] == baseline)]
    moved = [not _meet(_bounds(row, "_1"), _bounds(row, "_2")) for _, row in both.iterrows()]
    return _one_order(both[np.array(moved, bool)]).reset_index(drop=True)


def _bounds(row: pd.Series, end: str) -> tuple[float, float]:
    """Between which lengths the crossing surely lies."""
    match row["answer" + end]:
        case Answer.ALWAYS:
            return 0.0, row["from_len" + end]
        case Answer.NEVER:
            return row["to_len" + end], np.inf
        case Answer.FROM:
            return row["low" + end], row["high" + end]
    return 0.0, np.inf


def _meet(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def _one_order(rows: pd.DataFrame) -> pd.DataFrame:
    """Of a pair in both orders the one that has a length, else the first."""
    crosses = (rows["answer_1"] == Answer.FROM) | (rows["answer_2"] == Answer.FROM)
    ordered = pd.concat([rows[crosses], rows[~crosses]])
    columns = (ordered[name] for name in ("mode", "series", "other"))
    pairs = [(mode, *sorted(pair)) for mode, *pair in zip(*columns, strict=True)]
    return ordered[~pd.Series(pairs, ordered.index, dtype=object).duplicated()].sort_index()


def _last_zero(x: np.ndarray, y: np.ndarray) -> float:
    """Where y, negative at its end, last comes down through zero; the first x if it never does."""
    above = np.flatnonzero(y >= 0)
    if not len(above):
        return float(x[0])
    i = above[-1]
    return float(x[i] + (x[i + 1] - x[i]) * y[i] / (y[i] - y[i + 1]))
