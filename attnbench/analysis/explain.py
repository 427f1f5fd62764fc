"""Why one mechanism takes longer than another: the difference of their times, part by part.

Times of parts are those of a module with marks between them; the whole is that of the same module
without marks, in turns with it, and what the parts lack of it is the rest. Each operator costs its
part as much as one on single numbers does, which counts as launches. Where a device computes while
others launch, launches are what wall time has more. Rounds are the replication; differences are of
times, not of their logarithms, with Student's interval of their own variance.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from attnbench.analysis.scaling import Crossed, find_crossing
from attnbench.records import Count, Planned, Region, Sample, Seconds
from attnbench.statistics.curves import LogCurve
from attnbench.statistics.estimate import LEVEL, student_quantile
from attnbench.statistics.ratios import by_pair, gathered, means, numbered

SIDES = ("a", "b")
BEYOND = 64  # times the longest length, up to which a crossover is predicted


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One mechanism in one round: its laps as it is, and with marks."""

    whole: tuple[Sample, ...]
    # of each lap with marks, seconds of an iteration in parts; none if there were no marks
    regions: tuple[Mapping[Region, Seconds], ...] = ()
    operators: Mapping[Region, Count] = field(default_factory=dict)  # of an iteration
    launch_s: Seconds = 0.0  # of one of them
    lumped: bool = False  # whether gates, or projections too, are in the core

    @property
    def seconds(self) -> dict[Region, float]:
        """Seconds of an iteration by part; together, those of the module as it is."""
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


Found = Mapping[int, Mapping[int, tuple[Measured, Measured]]]  # by length, then by round


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What is known of the two at one length.

    `rows`: for each part, and for `all`, columns part, a_s, b_s, more_s (of the first over the
    second) and its interval low_s and high_s, NaN after one round. `ratio`: the first over the
    second. From `crossing` on the one `faster` is so, None if that cannot be told; without an
    interval it is predicted, infinite if not in sight; `between`: the lengths measured.
    """

    pair: tuple[Planned, Planned]
    rounds: Sequence[tuple[Measured, Measured]]
    rows: pd.DataFrame
    ratio: tuple[float, float, float]
    faster: str | None
    crossing: tuple[float, float, float]
    between: tuple[int, int]


def explain(pair: tuple[Planned, Planned], found: Found) -> Explanation:
    """The explanation of what was found at the length of the pair, and at others."""
    length, ratios = pair[0].case.workload.seq_len, raced(found)
    at, rounds = ratios.at([length]), [*found[length].values()]
    point, low, high = (float(np.exp(ends)[0]) for ends in (at.logs, at.low, at.high))
    faster, crossing = crossover(ratios)
    return Explanation(
        pair=pair,
        rounds=rounds,
        rows=split(rounds),
        ratio=(point, low, high),
        faster=faster,
        crossing=crossing,
        between=(ratios.whole[0], ratios.whole[-1]),
    )


def split(rounds: Sequence[tuple[Measured, Measured]]) -> pd.DataFrame:
    """The rows of an explanation, without parts that take no time."""
    found = np.array([[[*side.seconds.values()] for side in pair] for pair in rounds])
    found = np.concatenate([found, found.sum(2, keepdims=True)], 2)  # [R, 2, parts]
    more, (a, b), count = found[:, 0] - found[:, 1], found.mean(0), len(rounds)
    half = np.full(len(a), np.nan)
    if count > 1:
        half = student_quantile(LEVEL, count - 1) * more.std(0, ddof=1) / math.sqrt(count)
    mean = more.mean(0)
    columns = {"a_s": a, "b_s": b, "more_s": mean, "low_s": mean - half, "high_s": mean + half}
    return pd.DataFrame({"part": [*map(str, Region), "all"], **columns})[(a != 0) | (b != 0)]


def raced(found: Found) -> LogCurve:
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
    """`faster` and `crossing` of an explanation, by interpolation or else by the last slope."""
    for side, other, sign in (("a", "b", 1), ("b", "a", -1)):
        found = find_crossing(replace(ratio, logs=sign * ratio.logs))
        if found.answer is Crossed.FROM:
            return side, (found.length, found.low, found.high)
        if found.answer is Crossed.ALWAYS:
            log, slopes = float(ratio.logs[-1]), ratio.slopes().logs
            further = -log / slopes[-1] if len(slopes) and slopes[-1] else -1.0
            soon = 0 <= further <= math.log(BEYOND)
            length = ratio.whole[-1] * math.exp(further) if soon else math.inf
            return other, (length, math.nan, math.nan)
    return None, (math.nan, math.nan, math.nan)
