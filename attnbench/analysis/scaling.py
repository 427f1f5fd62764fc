"""How costs scale with length: exponents of one series, and speed-ups of two.

An exponent of N is the slope of log cost per sequence on log N. A curve may bend before it is
straight (fixed costs at short lengths), so the exponent is taken over the longest suffix of at
least four lengths that shows no bend: the 95 % confidence interval of the quadratic coefficient
must allow a slope that changes by at most `BEND` from one end to the other. If no suffix qualifies,
the last four lengths give the slope, marked "still bending".

Confidence intervals of time exponents follow from the rounds. Memory and FLOPs are exact, so their
range is of the slopes between neighbouring lengths.

What shows no bend may have one that noise hides: the interval of a bend is about seven times as
wide as that of the slope, so that hardly any sweep shows a curve of times to be straight. The
exponent is then that of the whole tail. What it may be at either end lies between `least` and
`most`, those of a parabola with their intervals; only what these exclude is excluded.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd

from attnbench.analysis.statistics.curves import LogCurve, cost_curve
from attnbench.analysis.statistics.estimate import IntervalKind
from attnbench.analysis.statistics.ratios import Ratios
from attnbench.records.metrics import DRAWN, TIME

METRICS = (*(row.key for row in DRAWN), "flops")
FEWEST = 4
# a change of the slope too small to matter; without it a quiet machine would find every curve bent
BEND = 0.1


class Tail(StrEnum):
    """The shape of the long end of a curve."""

    STRAIGHT = "straight"  # as far as is shown
    BENDING = "still bending"
    SHORT = "too few lengths"


class Pair(NamedTuple):
    """Two series of equal sizes: the log ratio of their times, and where they took turns."""

    mode: str
    a: str
    b: str
    curve: LogCurve  # of a over b
    paired: np.ndarray

    def turned(self) -> "Pair":
        """The other order."""
        curve = replace(self.curve, logs=-self.curve.logs)
        return self._replace(a=self.b, b=self.a, curve=curve)


def pairs(cases: pd.DataFrame, ratios: Ratios | None = None) -> Iterator[Pair]:
    """Each pair of series of equal sizes in each mode, once.

    `ratios` are those of the sweep, and are used where two series took turns. Of a single round no
    error is known, as the variation between processes is not.
    """
    timed = cases[cases[TIME] > 0]
    repeated = IntervalKind.ROUNDS in {*timed["interval_kind"]}
    for (mode, _), alike in timed.groupby(["mode", "sizes"], sort=False):
        by_series = alike.groupby("series", sort=False)
        curves = {str(name): cost_curve(rows, TIME) for name, rows in by_series}
        for a, b in combinations(curves, 2):
            curve = curves[a].minus(curves[b])
            paired = np.zeros(len(curve), bool)
            if ratios is not None:
                curve, paired = ratios.in_turns(curve, a, b, str(mode))
            if not repeated:
                curve = replace(curve, errors=np.full(len(curve), np.nan))
            yield Pair(str(mode), a, b, curve, paired)


def scaling(summary: pd.DataFrame, metrics: tuple[str, ...] = METRICS) -> pd.DataFrame:
    """One row per series, mode and metric: the exponent, its confidence interval and its lengths.

    Columns: series, mechanism, mode, metric, exponent, low, high, from_len, to_len, lengths, tail;
    least and most, between which the exponent lies at both ends of the tail.
    """
    rows = [
        (series, rows["mechanism"].iloc[0], mode, metric, *_exponent(cost_curve(rows, metric)))
        for (series, mode), rows in summary.groupby(["series", "mode"], sort=False)
        for metric in metrics
    ]
    columns = ["series", "mechanism", "mode", "metric", "exponent", "low", "high"]
    columns += ["from_len", "to_len", "lengths", "tail", "least", "most"]
    return pd.DataFrame(rows, columns=columns)


def speedups(
    summary: pd.DataFrame,
    baselines: Mapping[str, Collection[str]],
    ratios: Ratios | None = None,
) -> pd.DataFrame:
    """The speed-up of every other series over the baseline of its sizes, where both were timed.

    `baselines` are the series to compare with, by mode.

    Columns: series, mode, seq_len, ratio (time of the baseline over time), low, high (95 %
    confidence interval), paired (whether the two took turns).
    """
    rows = []
    for pair in pairs(summary, ratios):
        for mode, a, b, curve, paired in (pair, pair.turned()):
            if a in baselines.get(mode, ()):
                values = map(np.exp, (curve.logs, curve.low, curve.high))
                rows += [(b, mode, *row) for row in zip(curve.whole, *values, paired, strict=True)]
    columns = ["series", "mode", "seq_len", "ratio", "low", "high", "paired"]
    return pd.DataFrame(rows, columns=columns)


def _exponent(curve: LogCurve) -> tuple[object, ...]:
    """The exponent with its range, the first, last and number of its lengths, and its `Tail`.

    Then between which exponents both ends lie.
    """
    if len(curve) < FEWEST:
        return np.nan, np.nan, np.nan, *_extent(curve), str(Tail.SHORT), np.nan, np.nan
    suffixes = (curve[start:] for start in range(len(curve) - FEWEST + 1))
    straight = next((tail for tail in suffixes if _is_straight(tail)), None)
    tail = curve[-FEWEST:] if straight is None else straight
    slope, low, high = tail.coefficient(1)
    least, most = tail.end_slopes
    if (tail.errors == 0).all():
        steps = np.diff(tail.logs) / np.diff(np.log(tail.lengths))
        low = float(steps.min())
        high = float(steps.max())
        least = low
        most = high
    shape = Tail.BENDING if straight is None else Tail.STRAIGHT
    return slope, low, high, *_extent(tail), str(shape), least, most


def _extent(curve: LogCurve) -> tuple[int, int, int]:
    first, last = map(int, curve.lengths[[0, -1]]) if len(curve) else (0, 0)
    return first, last, len(curve)


def _is_straight(curve: LogCurve) -> bool:
    certain = replace(curve, errors=np.nan_to_num(curve.errors))
    _, low, high = certain.coefficient(2)
    limit = BEND / (2 * np.ptp(np.log(curve.lengths)))
    return bool(low <= limit and high >= -limit)
