"""Ratios of times from laps that were run in turns.

Within a block and a round the processes take turns, so a drift of the machine falls on all alike.
The ratio of one round is the median, over its pairs of laps, of the differences of log times; what
the rounds say together is in `analysis.rounds`.
"""

import math
from collections.abc import Hashable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import median
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from attnbench.analysis.curves import LogCurve
from attnbench.analysis.rounds import means
from attnbench.analysis.series import series_names
from attnbench.records import Mode, Outcome, Part, Run, Sample, Sweep

Laps = Mapping[int, float]  # pair of laps -> seconds of one iteration
Block = tuple[str, int]  # mode and length
Thing = TypeVar("Thing", bound=Hashable)


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A log ratio of times with its standard error and degrees of freedom.

    Both are NaN where the sweep has one round of every pair.
    """

    log: float
    se: float
    df: float


class Ratios:
    """Every ratio of times that a sweep measured in turns; empty for one that did not."""

    def __init__(self, sweep: Sweep) -> None:
        names = series_names(sweep.plan)
        blocks = {
            p.case.key: (str(p.case.workload.mode), p.case.workload.seq_len) for p in sweep.plan
        }
        found: dict[tuple[str, Block], dict[int, Laps]] = {}
        for run in sweep.runs:
            timed = run.part is Part.TIME and run.outcome is Outcome.OK and run.case in blocks
            if timed and (laps := by_pair(run.samples)):
                found.setdefault((names[run.case], blocks[run.case]), {})[run.round] = laps
        self.aliases: Mapping[str, str] = {}
        self.series = places(names.values())
        self.blocks = places(block for _, block in found)
        self.pairs = places(combinations(self.series.values(), 2))
        rounds = places(round_ for each in found.values() for round_ in each)
        logs = np.full((len(self.blocks), len(self.pairs), len(rounds)), np.nan)
        for (one, other), pair in zip(
            combinations(self.series, 2), self.pairs.values(), strict=True
        ):
            for block, place in self.blocks.items():
                shared = over_rounds(found.get((one, block), {}), found.get((other, block), {}))
                for round_, log in shared.items():
                    logs[place, pair, rounds[round_]] = log
        self.means = means(logs, list(self.pairs))

    def ratio(self, one: str, other: str, mode: str | Mode, seq_len: int) -> Ratio | None:
        """Log time of one series over another's, or None where they did not take turns."""
        block = self.blocks.get((str(mode), seq_len))
        first, second = (self.series.get(self.aliases.get(name, name), -1) for name in (one, other))
        pair = self.pairs.get((min(first, second), max(first, second)))
        if block is None or pair is None or math.isnan(self.means.log[block, pair]):
            return None
        log, se, df = (
            float(values[block, pair]) for values in (self.means.log, self.means.se, self.means.df)
        )
        return Ratio(log=log if first < second else -log, se=se, df=df)

    def named(self, names: Mapping[str, str]) -> "Ratios":
        """The same ratios with series under other names."""
        found = copy(self)
        found.aliases = {new: old for old, new in names.items()}
        return found

    def in_turns(
        self, independent: LogCurve, one: str, other: str, mode: str
    ) -> tuple[LogCurve, NDArray[np.bool_]]:
        """A log ratio with the paired values in place of independent ones, and where they stand."""
        ratios = [self.ratio(one, other, mode, int(n)) for n in independent.lengths]
        columns = (independent.logs, independent.errors, independent.df)
        rows = [
            row if ratio is None else (ratio.log, ratio.se, ratio.df)
            for ratio, row in zip(ratios, zip(*columns, strict=True), strict=True)
        ]
        logs, errors, df = np.array(rows, float).reshape(-1, 3).T
        paired = np.array([ratio is not None for ratio in ratios], bool)
        return replace(independent, logs=logs, errors=errors, df=df), paired


def by_pair(samples: Iterable[Sample]) -> Laps:
    """Seconds of one iteration in each pair of laps that is whole: the mean of its two."""
    seconds: dict[int, float] = {s.lap: sample_seconds(s) for s in samples if s.lap is not None}
    return {
        lap // 2: (seconds[lap] + seconds[lap + 1]) / 2
        for lap in seconds
        if lap % 2 == 0 and lap + 1 in seconds
    }


def log_ratio(one: Run, other: Run) -> float | None:
    """The log ratio of one round; None where the two shared no pair of laps."""
    return _log_ratio(by_pair(one.samples), by_pair(other.samples))


def over_rounds(one: Mapping[int, Laps], other: Mapping[int, Laps]) -> dict[int, float]:
    """The log ratio of each round in which the two shared a pair of laps."""
    found = {round_: _log_ratio(one[round_], other[round_]) for round_ in one.keys() & other.keys()}
    return {round_: log for round_, log in found.items() if log is not None}


def places(things: Iterable[Thing]) -> dict[Thing, int]:
    """The place of each among those that differ, in the order of their first appearance."""
    return {thing: place for place, thing in enumerate(dict.fromkeys(things))}


def sample_seconds(sample: Sample) -> float:
    """Seconds of one iteration: device time on a GPU, wall time else."""
    whole = sample.wall_s if sample.device_s is None else sample.device_s
    return whole / sample.iterations


def _log_ratio(one: Laps, other: Laps) -> float | None:
    logs = [math.log(one[pair] / other[pair]) for pair in one.keys() & other.keys()]
    return median(logs) if logs else None
