"""Head against base in pairs of fresh processes: statistics of one pair, and of all together.

Each pair gives three log ratios of head over base, since a change need not affect every call:

    typical  the median over rounds: what a typical call costs
    average  of the mean times: what all calls cost, also if only some of them are slower
    slowest  of the 90 % quantiles: whether calls differ more from one another than before

Confidence intervals rest on pairs and not on rounds: rounds of one process share its placement in
memory. With nothing changed, head and base can be exchanged, so each statistic is symmetric about
0 and Student's interval is not too narrow even where single samples have heavy tails.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Self

import numpy as np

from attnbench.analysis.estimate import student_quantile, student_within

LEVEL = 0.99
FLOORS = 2.0
FEWEST = 3  # pairs below which nothing is called
SLOWEST = 0.9  # the quantile of `slowest`: a tenth of 40 samples are four, one alone is an accident
# a sample counts for at most this many medians of its process: one stall is not a mean
BOUND = 3.0


class Statistic(StrEnum):
    """The statistics of a pair."""

    TYPICAL = "typical"
    AVERAGE = "average"
    SLOWEST = "slowest"


class Pair(NamedTuple):
    """Log ratios of head over base in one pair of processes."""

    typical: float
    average: float
    slowest: float

    @classmethod
    def of(cls, base: Sequence[float], head: Sequence[float]) -> Self:
        """From the seconds of all samples in order, two samples of each side a round."""
        rounds = np.log(_in_rounds(head) / _in_rounds(base))
        slowest = np.quantile(head, SLOWEST) / np.quantile(base, SLOWEST)
        return cls(
            typical=float(np.median(rounds)),
            average=math.log(mean(head) / mean(base)),
            slowest=math.log(slowest),
        )


class Effect(NamedTuple):
    """A log ratio with its confidence interval, and the p-value of no effect."""

    point: float
    low: float
    high: float
    p: float

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval excludes no effect."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, kw_only=True)
class Stage:
    """The pairs of one stage: head over base, and base over base."""

    head: tuple[Pair, ...] = ()
    again: tuple[Pair, ...] = ()


@dataclass(frozen=True, kw_only=True)
class View:
    """One statistic of a trial: log ratios of its first and second stage, and of base over base."""

    first: tuple[float, ...]
    second: tuple[float, ...]
    again: tuple[float, ...]

    @property
    def floor(self) -> float:
        """The noise of base against base: its mean, or that mean's standard error if larger."""
        if len(self.again) < FEWEST:
            return 0.0
        error = float(np.std(self.again, ddof=1)) / math.sqrt(len(self.again))
        return max(abs(float(np.mean(self.again))), error)

    def limit(self, threshold: float) -> float:
        """The log ratio below which a change is ignored."""
        return max(math.log1p(threshold), FLOORS * self.floor)

    def is_suspect(self, threshold: float) -> bool:
        """Whether the first stage says that head differs."""
        change = effect(self.first)
        return change.excludes_zero and abs(change.point) > self.limit(threshold)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One case, or the mean of several, in one or two stages."""

    name: str
    first: Stage
    second: Stage = Stage()

    def view(self, statistic: Statistic) -> View:
        """One statistic of all pairs."""
        first, second = self.first, self.second
        parts = (first.head, second.head, first.again + second.again)
        head, later, again = (tuple(getattr(pair, statistic) for pair in part) for part in parts)
        return View(first=head, second=later, again=again)


def effect(logs: Sequence[float], level: float = LEVEL) -> Effect:
    """Mean of the pairs' log ratios; NaN with an unbounded interval for fewer than three."""
    if len(logs) < FEWEST:
        return Effect(math.nan, -math.inf, math.inf, math.nan)
    point = float(np.mean(logs))
    error = float(np.std(logs, ddof=1)) / math.sqrt(len(logs))
    half = student_quantile(level, len(logs) - 1) * error
    if error == 0:
        return Effect(point, point, point, float(point == 0))
    return Effect(
        point, point - half, point + half, 1 - student_within(abs(point) / error, len(logs) - 1)
    )


def mean_of(name: str, trials: Sequence[Trial]) -> Trial:
    """The geometric mean of several cases, pair by pair: pairs are visits to all of them."""
    stages = []
    for stage in ("first", "second"):
        parts = [getattr(trial, stage) for trial in trials]
        stages.append(
            Stage(head=_means([p.head for p in parts]), again=_means([p.again for p in parts]))
        )
    return Trial(name=name, first=stages[0], second=stages[1])


def mean(times: Sequence[float]) -> float:
    """The mean of one process's samples, each bounded at `BOUND` medians."""
    return float(np.minimum(times, BOUND * np.median(times)).mean())


def _means(rows: Sequence[Sequence[Pair]]) -> tuple[Pair, ...]:
    visits = zip(*rows, strict=False)  # a case that failed has fewer
    return tuple(Pair(*map(float, np.mean(visit, axis=0))) for visit in visits)


def _in_rounds(times: Sequence[float]) -> np.ndarray:
    means: np.ndarray = np.reshape(times, (-1, 2)).mean(axis=1)
    return means
