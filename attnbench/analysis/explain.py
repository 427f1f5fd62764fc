"""Why one mechanism takes longer than another: the difference of their times, part by part.

Parts are timed in a module with marks between them. The total is that of the same module without
marks, run in turns with it; the rest is the total less the parts. From each part the cost of its
operators on scalars is taken away and counted as launches. Where the host launches while a device
computes, launches are the excess of wall time. Rounds are the replicates; differences are of times,
not of their logarithms, with Student's intervals from their own variance.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pandas as pd

from attnbench.analysis.scaling import CrossoverKind, find_crossover
from attnbench.records import Count, Planned, Region, Sample, Seconds
from attnbench.statistics.curves import LogCurve
from attnbench.statistics.estimate import LEVEL, student_quantile
from attnbench.statistics.ratios import by_pair, gathered, means, numbered

SIDES = ("a", "b")
BEYOND = 64  # times the longest length, up to which a crossover is predicted


@dataclass(frozen=True, kw_only=True)
class SideTimings:
    """One mechanism in one round: its laps without and with marks."""

    whole: tuple[Sample, ...]
    # seconds of an iteration by part, for each lap with marks; empty if there were no marks
    regions: tuple[Mapping[Region, Seconds], ...] = ()
    operators: Mapping[Region, Count] = field(default_factory=dict)  # of an iteration
    launch_s: Seconds = 0.0  # of one of them
    lumped: bool = False  # whether gates, or also projections, count as core

    @property
    def seconds(self) -> dict[Region, float]:
        """Seconds of an iteration by part; they add up to those of the module without marks."""
        shown_s = [s.unheld_wall_s - s.seconds for s in self.whole if s.device_s is not None]
        pairs = zip(self.regions[::2], self.regions[1::2], strict=True)
        faster = [min(pair, key=lambda lap: sum(lap.values())) for pair in pairs]
        parts = {r: float(np.mean([lap.get(r, 0.0) for lap in faster])) for r in Region}
        parts[Region.REST] = float(np.mean([*by_pair(self.whole).values()])) - sum(
            seconds for region, seconds in parts.items() if region is not Region.REST
        )
        for region, count in self.operators.items():
            parts[region] -= count * self.launch_s
            parts[Region.LAUNCHES] += count * self.launch_s
        parts[Region.LAUNCHES] += max(0.0, float(np.mean(shown_s or 0.0)))
        return parts


# by length, then by round
TimingsByLength = Mapping[int, Mapping[int, tuple[SideTimings, SideTimings]]]


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Two cases of one length, with measurements there and at lengths around it."""

    pair: tuple[Planned, Planned]
    found: TimingsByLength

    @property
    def rounds(self) -> list[tuple[SideTimings, SideTimings]]:
        """What was measured at the length of the two."""
        return [*self.found[self.pair[0].case.workload.seq_len].values()]

    @cached_property
    def rows(self) -> pd.DataFrame:
        """`split` of the rounds."""
        return split(self.rounds)

    @cached_property
    def ratios(self) -> LogCurve:
        """The log of the time of the first over the second, by length."""
        return raced(self.found)

    @property
    def crossing(self) -> tuple[str | None, tuple[float, float, float]]:
        """The `crossover` of the ratios."""
        return crossover(self.ratios)

    @property
    def ratio(self) -> list[float]:
        """The time of the first over the second, and its interval, NaN if unknown."""
        at = self.ratios.at([self.pair[0].case.workload.seq_len])
        return [float(np.exp(ends)[0]) for ends in (at.logs, at.low, at.high)]


def split(rounds: Sequence[tuple[SideTimings, SideTimings]]) -> pd.DataFrame:
    """A row for each part that takes time, and for `all`.

    Columns: part, a_s, b_s, more_s (of the first over the second), low_s, high_s (its interval, NaN
    after one round).
    """
    found = np.array([[[*side.seconds.values()] for side in pair] for pair in rounds])
    found = np.concatenate([found, found.sum(2, keepdims=True)], 2)  # [R, 2, parts]
    more, (a, b), count = found[:, 0] - found[:, 1], found.mean(0), len(rounds)
    half = np.full(len(a), np.nan)
    if count > 1:
        half = student_quantile(LEVEL, count - 1) * more.std(0, ddof=1) / math.sqrt(count)
    mean = more.mean(0)
    columns = {"a_s": a, "b_s": b, "more_s": mean, "low_s": mean - half, "high_s": mean + half}
    parts = pd.DataFrame({"part": [*map(str, Region), "all"], **columns})
    taken: pd.DataFrame = parts[(a != 0) | (b != 0)]
    return taken


def raced(found: TimingsByLength) -> LogCurve:
    """The log of the time of the first over the second, by length."""
    lengths = sorted(found)
    processes = {(n, round_): round_ for n, own in found.items() for round_ in own}
    laps = {
        (side, n): {round_: by_pair(both[i].whole) for round_, both in own.items()}
        for n, own in found.items()
        for i, side in enumerate(SIDES)
    }
    logs = gathered(laps, numbered(SIDES), numbered(lengths), processes)
    ratios = means(logs, [(0, 1)])
    log, errors, df = (values[:, 0] for values in ratios[:3])
    return LogCurve(lengths=np.array(lengths, float), logs=log, errors=errors, df=df)


def crossover(ratio: LogCurve) -> tuple[str | None, tuple[float, float, float]]:
    """Which of the two is faster from which length on, with its interval; None: cannot tell.

    Beyond the measured lengths it is extrapolated from the last slope, without an interval, and
    infinite if it lies beyond `BEYOND`.
    """
    for side, other, sign in (("a", "b", 1), ("b", "a", -1)):
        found = find_crossover(replace(ratio, logs=sign * ratio.logs))
        if found.answer is CrossoverKind.FROM:
            return side, (found.length, found.low, found.high)
        if found.answer is CrossoverKind.ALWAYS and len(ratio) > 1:
            log, slopes = float(ratio.logs[-1]), ratio.slopes().logs
            further = -log / slopes[-1] if slopes[-1] else -1.0
            soon = 0 <= further <= math.log(BEYOND)
            length = ratio.whole[-1] * math.exp(further) if soon else math.inf
            return other, (length, math.nan, math.nan)
    return None, (math.nan, math.nan, math.nan)
