"""Head against base in pairs of fresh processes: statistics of one pair, and of all together.

Each pair gives three log ratios of head over base, since a change need not affect every call:

    typical  the median over rounds: the cost of a typical call
    average  of the mean times: the cost of all calls, including a slowdown of only some
    slowest  of the 90 % quantiles: whether calls vary more than before

Confidence intervals rest on pairs, not on rounds, since rounds of one process share its placement
in memory. Without a change, head and base can be exchanged, so each statistic is symmetric about 0
and Student's interval is not too narrow even where single samples have heavy tails.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Self

import numpy as np

from attnbench.analysis.estimate import p_value, student_quantile

LEVEL = 0.99
FLOORS = 2.0
FEWEST = 3  # pairs below which there is no verdict
SLOWEST = 0.9  # quantile of `slowest`: a tenth of 40 samples is four, and one could be an accident
# a sample counts for at most this many medians of its process, so that one stall moves no mean
BOUND = 3.0


class Statistic(StrEnum):
    """A statistic of a pair."""

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
        """From the seconds of all samples in order, two samples of each side per round."""
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
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, kw_only=True)
class Stage:
    """The pairs of one stage: head over base, and base over base."""

    head: tuple[Pair, ...] = ()
    again: tuple[Pair, ...] = ()


@dataclass(frozen=True, kw_only=True)
class View:
    """One statistic of a case: log ratios of both stages, and of base over base."""

    first: tuple[float, ...]
    second: tuple[float, ...]
    again: tuple[float, ...]

    @property
    def floor(self) -> float:
        """The noise floor: the mean of base against base, or its standard error if larger."""
        if len(self.again) < FEWEST:
            return 0.0
        error = float(np.std(self.again, ddof=1)) / math.sqrt(len(self.again))
        return max(abs(float(np.mean(self.again))), error)

    def limit(self, threshold: float) -> float:
        """The log ratio below which a change is ignored."""
        return max(math.log1p(threshold), FLOORS * self.floor)

    def is_suspect(self, threshold: float) -> bool:
        """Whether the first stage indicates that head differs."""
        change = effect(self.first)
        return change.excludes_zero and abs(change.point) > self.limit(threshold)


@dataclass(frozen=True, kw_only=True)
class Evidence:
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
    """The mean of the pairs' log ratios; NaN and unbounded for fewer than three."""
    if len(logs) < FEWEST:
        return Effect(math.nan, -math.inf, math.inf, math.nan)
    point = float(np.mean(logs))
    error = float(np.std(logs, ddof=1)) / math.sqrt(len(logs))
    half = student_quantile(level, len(logs) - 1) * error
    return Effect(point, point - half, point + half, p_value(point, error, len(logs) - 1))


def mean_of(name: str, cases: Sequence[Evidence]) -> Evidence:
    """The geometric mean of several cases, pair by pair, since each pair visits all of them."""
    first, second = (
        Stage(head=_means([s.head for s in stages]), again=_means([s.again for s in stages]))
        for stages in ([t.first for t in cases], [t.second for t in cases])
    )
    return Evidence(name=name, first=first, second=second)


def mean(times: Sequence[float]) -> float:
    """The mean of the samples of one process, each bounded at `BOUND` medians."""
    return float(np.minimum(times, BOUND * np.median(times)).mean())


def _means(rows: Sequence[Sequence[Pair]]) -> tuple[Pair, ...]:
    visits = zip(*rows, strict=False)  # a case that failed has fewer
    return tuple(Pair(*map(float, np.mean(visit, axis=0))) for visit in visits)


def _in_rounds(times: Sequence[float]) -> np.ndarray:
    means: np.ndarray = np.reshape(times, (-1, 2)).mean(axis=1)
    return means
