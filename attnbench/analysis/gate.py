"""Head against base from interleaved process pairs: the rule that calls a change a slowdown.

    pair    the median over rounds of log(head / base), taken turn about by two fresh processes
    effect  the mean of the pairs, with a t interval of pairs − 1 degrees of freedom
    floor   what the same pairs say of base against base, where nothing differs

A change is suspected if the 99 % interval leaves out 0 and the effect is above the threshold and
twice the floor. It is called only if a second stage in fresh processes says the same, with
Benjamini and Hochberg's rule over all p-values of that stage. Pairs and not rounds are what the
interval rests on: rounds of one process share its placement in memory.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from attnbench.analysis.student import quantile, within
from attnbench.analysis.verdict import Verdict, discoveries

CPU_THRESHOLD = 0.02
OTHER_THRESHOLD = 0.03  # device time: clocks move between samples
SUSPICION = 0.99
# two one-sided tests at 5 % each are an interval of 90 %
SAMENESS = 0.90
FLOORS = 2.0
# where twice the floor is above this, a machine that sees no change has not said much
BLIND = 0.05
FEWEST = 3  # pairs below which nothing is called


class Effect(NamedTuple):
    """A log ratio with its interval and the p-value of no effect."""

    point: float
    low: float
    high: float
    p: float

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval leaves out no effect."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Log ratios, one a pair: head over base, and base over base."""

    head: tuple[float, ...] = ()
    again: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One case, or the mean of some, in one or two stages."""

    name: str
    first: Stage
    second: Stage = Stage()

    @property
    def floor(self) -> float:
        """What base against base shows: its mean, or that mean's standard error if larger."""
        logs = self.first.again + self.second.again
        if len(logs) < FEWEST:
            return 0.0
        return max(abs(float(np.mean(logs))), float(np.std(logs, ddof=1)) / math.sqrt(len(logs)))

    def limit(self, threshold: float) -> float:
        """The log ratio below which a change is none."""
        return max(math.log1p(threshold), FLOORS * self.floor)


class Judged(NamedTuple):
    """The verdict on a trial and the effect it rests on."""

    verdict: Verdict
    effect: Effect
    reason: str


def pair_log(base: Sequence[float], head: Sequence[float]) -> float:
    """The log ratio of one pair from the times of its rounds."""
    return float(np.median(np.log(np.asarray(head) / np.asarray(base))))


def effect(logs: Sequence[float], level: float = SUSPICION) -> Effect:
    """Mean of the pairs' log ratios; NaN with an endless interval for fewer than three."""
    if len(logs) < FEWEST:
        return Effect(math.nan, -math.inf, math.inf, math.nan)
    point = float(np.mean(logs))
    error = float(np.std(logs, ddof=1)) / math.sqrt(len(logs))
    half = quantile(level, len(logs) - 1) * error
    if error == 0:
        return Effect(point, point, point, float(point == 0))
    return Effect(point, point - half, point + half, 1 - within(abs(point) / error, len(logs) - 1))


def suspected(trial: Trial, threshold: float) -> bool:
    """Whether the first stage says that head differs."""
    found = effect(trial.first.head)
    return found.excludes_zero and abs(found.point) > trial.limit(threshold)


def settled(trial: Trial, threshold: float) -> bool:
    """Whether the first stage says that head does not differ."""
    return not suspected(trial, threshold) and _is_same(trial.first.head, trial, threshold)


def judge(trials: Sequence[Trial], threshold: float) -> list[Judged]:
    """The verdict on each trial of one check, `slower` or `faster` only after both stages."""
    suspects = [suspected(trial, threshold) for trial in trials]
    seconds = [effect(trial.second.head) for trial in trials]
    p_values = [s.p if suspect else math.nan for s, suspect in zip(seconds, suspects, strict=True)]
    called = discoveries(p_values)
    return [
        _judged(trial, suspect, bool(call), threshold)
        for trial, suspect, call in zip(trials, suspects, called, strict=True)
    ]


def contaminated(trials: Sequence[Trial], threshold: float) -> tuple[str, ...]:
    """Trials where base differs from base: then no time of this job can be trusted."""
    effects = [effect(trial.first.again + trial.second.again) for trial in trials]
    real = discoveries([e.p for e in effects])
    large = math.log1p(threshold)
    return tuple(
        trial.name
        for trial, e, call in zip(trials, effects, real, strict=True)
        if call and e.excludes_zero and abs(e.point) > large
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


def _means(rows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    shared = min(len(row) for row in rows)
    return tuple(float(np.mean([row[i] for row in rows])) for i in range(shared))


def _judged(trial: Trial, suspect: bool, called: bool, threshold: float) -> Judged:
    first, second = effect(trial.first.head), effect(trial.second.head)
    limit = trial.limit(threshold)
    # a suspicion is tested by what raised no suspicion; without one all pairs say the same
    logs = trial.second.head if suspect else trial.first.head + trial.second.head
    last = effect(logs)
    if suspect and len(logs) < FEWEST:
        return Judged(Verdict.UNSURE, first, "suspected; no time was left to confirm it")
    if len(logs) < FEWEST:
        return Judged(Verdict.UNSURE, first, f"only {len(logs)} pairs of processes ran")
    if suspect and called and first.point * second.point > 0 and abs(second.point) > limit:
        return Judged(Verdict.SLOWER if second.point > 0 else Verdict.FASTER, second, "")
    if _is_same(logs, trial, threshold):
        return Judged(Verdict.SAME, last, "")
    if suspect:
        return Judged(Verdict.UNSURE, last, "suspected at first, not confirmed")
    return Judged(Verdict.UNSURE, last, f"cannot be told from a change of {math.expm1(limit):.1%}")


def _is_same(logs: Sequence[float], trial: Trial, threshold: float) -> bool:
    found, limit = effect(logs, SAMENESS), trial.limit(threshold)
    blind = limit > math.log1p(max(threshold, BLIND))
    return not blind and -limit <= found.low and found.high <= limit
