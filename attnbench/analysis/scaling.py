"""Exponents of N: the slope of log cost per sequence on log N, over the straight tail.

A curve may bend before it is straight (fixed costs at short lengths), so the exponent is taken
over the longest suffix of at least four lengths that shows no bend: the 95 % confidence interval of
the quadratic coefficient must allow a slope that changes by at most `BEND` from one end to the
other. If no suffix qualifies, the last four lengths give the slope, marked "still bending".

Confidence intervals of time exponents follow from the rounds. Memory and FLOPs are exact, so their
range is that of the slopes between neighbouring lengths.

For decoding: the time of a step at the longest context, and the growth of the state per token.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import pairwise
from types import MappingProxyType

import numpy as np
import pandas as pd

from attnbench.analysis.curves import LogCurve, cost_curve
from attnbench.records import CardFacts, Level, Mode

METRICS = ("time_s", "allocated_peak_bytes", "flops")

FEWEST = 4

# a change of the slope too small to matter; without it a quiet machine would find every curve bent
BEND = 0.1

# everything outside the core is linear in N, so nothing measured around it grows more slowly
LEAST_EXPONENT: Mapping[Level, float] = MappingProxyType(
    {Level.CORE: 0.0, Level.ATTENTION: 1.0, Level.MODEL: 1.0}
)


STEPS = 1.0  # the exponent of the number of steps that decode a sequence


class Tail(StrEnum):
    """The shape of the long end of a curve."""

    STRAIGHT = "straight"
    BENDING = "still bending"
    SHORT = "too few lengths"


def scaling(summary: pd.DataFrame, metrics: tuple[str, ...] = METRICS) -> pd.DataFrame:
    """One row per series, mode and metric: the exponent, its confidence interval and its lengths.

    Columns: series, mechanism, mode, metric, exponent, low, high, from_len, to_len, lengths, tail.
    """
    rows = [
        {"series": series, "mechanism": rows["mechanism"].iloc[0], "mode": mode, "metric": metric}
        | _exponent(cost_curve(rows, metric))
        for (series, mode), rows in summary.groupby(["series", "mode"], sort=False)
        for metric in metrics
    ]
    columns = ["series", "mechanism", "mode", "metric", "exponent", "low", "high"]
    return pd.DataFrame(rows, columns=[*columns, "from_len", "to_len", "lengths", "tail"])


def judged(scaling: pd.DataFrame, cards: Sequence[CardFacts], level: Level) -> pd.DataFrame:
    """The same rows with `expected`, the card's exponent, and `disagrees`.

    A straight tail disagrees if its confidence interval is more than `BEND` away from `expected`.
    """
    powers = expectations(cards, level)
    keys = zip(scaling["mechanism"], scaling["metric"], scaling["mode"], strict=True)
    expected = np.array([expected_of(powers, *key) for key in keys], float)
    differs = (scaling["low"] > expected + BEND) | (scaling["high"] < expected - BEND)
    straight = scaling["tail"] == Tail.STRAIGHT
    return scaling.assign(expected=expected, disagrees=differs & straight)


def expectations(cards: Sequence[CardFacts], level: Level) -> dict[tuple[str, str], float]:
    """The exponents of time and memory that the cards state, by mechanism and metric."""
    return {
        (card.mechanism, metric): max(power, LEAST_EXPONENT[level])
        for card in cards
        for metric, power in zip(METRICS, (card.time_exponent, card.memory_exponent), strict=False)
        if power is not None
    }


def expected_of(
    powers: Mapping[tuple[str, str], float], mechanism: str, metric: str, mode: str
) -> float:
    """What the card states of a metric; in decode a time is that of one of N steps.

    NaN for the peak of decoding, which is that of its prompt.
    """
    power = powers.get((mechanism, metric), np.nan)
    if mode != Mode.DECODE:
        return power
    return float(np.maximum(power - STEPS, 0.0)) if metric == "time_s" else np.nan


def local_slopes(summary: pd.DataFrame) -> pd.DataFrame:
    """The slope of time between neighbouring lengths, with its interval, per series and mode.

    Columns: series, mechanism, mode, from_len, to_len, slope, low, high.
    """
    rows = []
    for (series, mode), cases in summary.groupby(["series", "mode"], sort=False):
        curve, mechanism = cost_curve(cases, "time_s"), cases["mechanism"].iloc[0]
        ends, slopes = pairwise(curve.lengths.astype(int)), curve.slopes()
        for pair, *values in zip(ends, slopes.logs, slopes.low, slopes.high, strict=True):
            rows.append((series, mechanism, mode, *pair, *values))
    columns = ["series", "mechanism", "mode", "from_len", "to_len", "slope", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


def _exponent(curve: LogCurve) -> dict[str, object]:
    if len(curve) < FEWEST:
        nothing = {"exponent": np.nan, "low": np.nan, "high": np.nan}
        return nothing | _extent(curve) | {"tail": str(Tail.SHORT)}
    suffixes = (curve[start:] for start in range(len(curve) - FEWEST + 1))
    straight = next((tail for tail in suffixes if _is_straight(tail)), None)
    tail = curve[-FEWEST:] if straight is None else straight
    slope, low, high = tail.coefficient(1)
    if (tail.errors == 0).all():
        steps = tail.slopes().logs
        low, high = float(steps.min()), float(steps.max())
    shape = Tail.BENDING if straight is None else Tail.STRAIGHT
    return {"exponent": slope, "low": low, "high": high} | _extent(tail) | {"tail": str(shape)}


def _extent(tail: LogCurve) -> dict[str, object]:
    first, last = map(int, tail.lengths[[0, -1]]) if len(tail) else (0, 0)
    return {"from_len": first, "to_len": last, "lengths": len(tail)}


def _is_straight(curve: LogCurve) -> bool:
    known = replace(curve, errors=np.nan_to_num(curve.errors))
    _, low, high = known.coefficient(2)
    limit = BEND / (2 * np.ptp(np.log(curve.lengths)))
    return bool(low <= limit and high >= -limit)


def decoding(cases: pd.DataFrame) -> pd.DataFrame:
    """One row per series that was decoded, at its longest length with a step and a state.

    `cases` are those of `summary`. Columns: those of the case, and token_bytes, the growth of the
    state of a sequence per token: the slope between the two longest lengths, NaN if there
    is only one.
    """
    known = cases[(cases["mode"] == Mode.DECODE) & cases["time_s"].notna()]
    known = known[known["state_bytes"].notna()].sort_values("seq_len", kind="stable")
    own = known["state_bytes"] / known["batch"]
    series = known["series"]
    grown = own.groupby(series).diff() / known["seq_len"].groupby(series).diff()
    longest = known.assign(token_bytes=grown.astype(float)).groupby("series", sort=False).tail(1)
    order = {name: i for i, name in enumerate(dict.fromkeys(cases["series"]))}
    return longest.sort_values("series", key=lambda names: names.map(order).astype(np.int64))
