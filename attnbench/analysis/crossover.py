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
from attnbench.analysis.ratios import Ratios
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
        curves = dict(iter(known.groupby("series")))
        for one, other in _pairs(dict.fromkeys(known["series"]), baseline):
            logs = differences(curves[one], curves[other], metric, ratios)
            lengths, df = logs.index.to_numpy(float), logs["df"].to_numpy()
            found = crossing(lengths, logs["y"].to_numpy(), logs["se"].to_numpy(), df)
            ends = (int(lengths[0]), int(lengths[-1])) if len(lengths) else (0, 0)
            answer = (str(found.answer), found.length, found.low, found.high)
            rows.append((mode, metric, one, other, *answer, *ends))
    columns = "mode metric series other answer length low high from_len to_len"
    return pd.DataFrame(rows, columns=columns.split())


def crossing(
    lengths: np.ndarray, differences: np.ndarray, errors: np.ndarray, df: np.ndarray | float
) -> Crossing:
    """Where log differences, each with a standard error and its df, fall below zero for good.

    Errors that are not known (NaN) leave only "cannot tell".
    """
    if not len(lengths) or not np.isfinite(errors).all():
        return Crossing(answer=Answer.UNCLEAR)
    half = half_widths(errors, np.broadcast_to(df, errors.shape))
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


def differences(
    one: pd.DataFrame, other: pd.DataFrame, metric: str, ratios: Ratios | None = None
) -> pd.DataFrame:
    """Log cost of one series over another's by length: columns y, se, df, paired.

    Both are rows of the summary in one mode. Independent errors add; the fewer degrees of freedom
    count. Counted metrics have no error.
    """
    a, b = _curve(one, metric), _curve(other, metric)
    a, b = a.align(b, join="inner", axis=0)
    found = pd.DataFrame(
        {
            "y": a["y"] - b["y"],
            "se": np.hypot(a["se"], b["se"]),
            "df": np.minimum(a["df"], b["df"]),
        }
    )
    if ratios is None or not metric.endswith("_s") or not len(found):
        return found.assign(paired=False)
    names = [str(rows["series"].iloc[0]) for rows in (one, other)]
    return ratios.refine(found, names[0], names[1], str(one["mode"].iloc[0]))


def half_widths(errors: Iterable[float], dfs: Iterable[float]) -> np.ndarray:
    """Half the 95 % interval of each log; NaN where the error is not known."""
    return np.array(
        [
            (error if error == 0 else quantile(LEVEL, df) * error) if error >= 0 else np.nan
            for error, df in zip(errors, dfs, strict=True)
        ],
        float,
    )


def _curve(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Log cost with its error and degrees of freedom, by length."""
    known = rows[rows[metric] > 0].sort_values("seq_len").set_index("seq_len")
    timed = metric.endswith("_s")
    return pd.DataFrame(
        {
            "y": np.log(known[metric]),
            "se": known["time_log_se"] if timed else 0.0,
            "df": known["time_df"] if timed else np.inf,
        }
    )


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
