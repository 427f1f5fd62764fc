"""The rule that calls a change of time a slowdown, from pairs of fresh processes.

Each pair gives two log ratios of head over base, since a change need not affect every call:

    typical  the median over rounds: the cost of a typical call
    average  of the mean times: the cost of all calls, including a slowdown of only some

Confidence intervals rest on pairs, not on rounds, since rounds of one process share its placement
in memory. Without a change, head and base can be exchanged, so each statistic is symmetric about 0
and Student's interval is not too narrow even where single samples have heavy tails.

A change is suspected if the 99 % confidence interval of the typical or the average call excludes 0
and the effect exceeds the threshold and twice the noise floor, which is base against base in the
same pairs. It is called only if a second stage in fresh processes confirms it, with Benjamini and
Hochberg's rule over all p-values of that stage, or if the interval lies beyond three times the
threshold and a second stage was too short to decide.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Self

import numpy as np

from attnbench.metrics import TIME
from attnbench.statistics.estimate import p_value, student_quantile
from attnbench.statistics.verdict import Verdict, discoveries
from attnbench.units import percent

LEVEL = 0.99
FLOORS = 2.0  # noise floors that an effect must exceed
FEWEST = 3  # pairs below which there is no verdict
# thresholds beyond which a change is called even if there was no time to confirm it
CLEAR = 3.0
# a sample counts for at most this many medians of its process, so that one stall moves no mean
BOUND = 3.0
# two one-sided tests at 5 % each amount to a confidence interval of 90 %
SAMENESS = 0.90
# a machine that cannot exclude a change as large as this never gives the verdict `same`
MAX_USABLE_LIMIT = 0.05


class Statistic(StrEnum):
    """A statistic of a pair."""

    TYPICAL = "typical"
    AVERAGE = "average"


class Pair(NamedTuple):
    """Log ratios of head over base in one pair of processes."""

    typical: float
    average: float

    @classmethod
    def of(cls, base: Sequence[float], head: Sequence[float]) -> Self:
        """From the seconds of all samples in order, two samples of each side per round."""
        of_base, of_head = (np.reshape(times, (-1, 2)).mean(axis=1) for times in (base, head))
        return cls(
            typical=float(np.median(np.log(of_head / of_base))),
            average=math.log(mean(head) / mean(base)),
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

    def deciding(self, threshold: float) -> tuple[float, ...]:
        """What may clear the case: stage two alone if stage one made it a suspect, else both."""
        return self.second if self.is_suspect(threshold) else self.first + self.second


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A metric of one case, in one or two stages."""

    name: str
    first: Stage
    second: Stage = Stage()
    metric: str = TIME

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


def mean(times: Sequence[float]) -> float:
    """The mean of the samples of one process, each bounded at `BOUND` medians."""
    return float(np.minimum(times, BOUND * np.median(times)).mean())


UNCONFIRMED = "no time was left to confirm"


class Ruling(NamedTuple):
    """The verdict on a case, with the effect and statistic behind it."""

    verdict: Verdict
    effect: Effect
    reason: str
    statistic: Statistic = Statistic.TYPICAL


def suspected(evidence: Evidence, threshold: float) -> bool:
    """Whether the first stage indicates that head differs."""
    return any(evidence.view(statistic).is_suspect(threshold) for statistic in Statistic)


def unconfirmed(evidence: Evidence, threshold: float) -> bool:
    """Whether it is suspected, and no second stage has confirmed or refuted it."""
    return suspected(evidence, threshold) and len(evidence.second.head) < FEWEST


def settled(evidence: Evidence, threshold: float) -> bool:
    """Whether the first stage shows that head does not differ."""
    if suspected(evidence, threshold):
        return False
    return all(_is_same(evidence, stat, evidence.view(stat).first, threshold) for stat in Statistic)


def judge(cases: Sequence[Evidence], threshold: float) -> list[Ruling]:
    """The verdict on each case of one check."""
    views = [evidence.view(statistic) for evidence in cases for statistic in Statistic]
    p_values = [effect(v.second).p if v.is_suspect(threshold) else math.nan for v in views]
    real = discoveries(p_values)
    called = [
        bool(call) and _confirms(view, threshold) for view, call in zip(views, real, strict=True)
    ]
    return [
        _judged(evidence, dict(zip(Statistic, calls, strict=True)), threshold)
        for evidence, calls in zip(cases, zip(called[::2], called[1::2], strict=True), strict=True)
    ]


def contaminated(cases: Sequence[Evidence], threshold: float) -> tuple[str, ...]:
    """Cases in which base differs from base, so that no time of the check can be trusted."""
    effects = [effect(evidence.view(Statistic.TYPICAL).again) for evidence in cases]
    real = discoveries([e.p for e in effects])
    return tuple(
        evidence.name
        for evidence, e, call in zip(cases, effects, real, strict=True)
        if call and e.excludes_zero and abs(e.point) > math.log1p(threshold)
    )


def _judged(evidence: Evidence, called: dict[Statistic, bool], threshold: float) -> Ruling:
    if any(called.values()):
        statistic = _shown(evidence, [s for s in Statistic if called[s]], threshold)
        last = effect(evidence.view(statistic).second)
        verdict = Verdict.SLOWER if last.point > 0 else Verdict.FASTER
        return Ruling(verdict, last, _reason(statistic), statistic)
    for statistic in Statistic:
        view = evidence.view(statistic)
        if _is_clear(view, threshold):
            clear = effect(view.first)
            verdict = Verdict.SLOWER if clear.point > 0 else Verdict.FASTER
            reason = UNCONFIRMED if len(view.second) < FEWEST else ""
            return Ruling(verdict, clear, _reason(statistic, reason), statistic)
    for statistic in Statistic:
        view = evidence.view(statistic)
        logs = view.deciding(threshold)
        if not _is_same(evidence, statistic, logs, threshold):
            shown = effect(logs if len(logs) >= FEWEST else view.first)
            doubt = _reason(statistic, _doubt(view, threshold))
            return Ruling(Verdict.UNSURE, shown, doubt, statistic)
    shown = effect(evidence.view(Statistic.TYPICAL).deciding(threshold))
    return Ruling(Verdict.SAME, shown, "")


def _reason(statistic: Statistic, reason: str = "") -> str:
    average = statistic is Statistic.AVERAGE
    return "; ".join(filter(None, ("on average over all calls" if average else "", reason)))


def _shown(evidence: Evidence, called: Sequence[Statistic], threshold: float) -> Statistic:
    """The called statistic to show: the average if it differs from the typical."""
    if len(called) == 1:
        return called[0]
    gap = effect([pair.average - pair.typical for pair in evidence.second.head])
    differs = gap.excludes_zero and abs(gap.point) > math.log1p(threshold)
    return Statistic.AVERAGE if differs else Statistic.TYPICAL


def _confirms(view: View, threshold: float) -> bool:
    """Whether the second stage confirms the suspicion of the first."""
    first, second = effect(view.first), effect(view.second)
    return first.point * second.point > 0 and abs(second.point) > view.limit(threshold)


def _is_clear(view: View, threshold: float) -> bool:
    """Whether a suspicion that no second stage refutes is far beyond the threshold."""
    if not view.is_suspect(threshold) or (
        len(view.second) >= FEWEST and not _confirms(view, threshold)
    ):
        return False
    first = effect(view.first)
    return max(first.low, -first.high) > math.log1p(CLEAR * threshold)


def _is_same(
    evidence: Evidence, statistic: Statistic, logs: Sequence[float], threshold: float
) -> bool:
    limit = evidence.view(statistic).limit(threshold)
    if limit > math.log1p(max(threshold, MAX_USABLE_LIMIT)):
        return False
    if statistic is Statistic.AVERAGE:
        # the average is noisier, and only has to exclude what the typical call does not show
        limit = math.log1p(max(threshold, MAX_USABLE_LIMIT))
    interval = effect(logs, SAMENESS)
    return -limit <= interval.low and interval.high <= limit


def _doubt(view: View, threshold: float) -> str:
    """Why the change is neither called nor excluded."""
    limit = percent(math.expm1(view.limit(threshold)))
    if view.is_suspect(threshold):
        refuted = "suspected at first; a second measurement does not confirm it"
        return UNCONFIRMED if len(view.second) < FEWEST else refuted
    if effect(view.first + view.second).excludes_zero:
        return f"there is a change, but it need not exceed the limit of {limit}"
    return f"too noisy to exclude a change of {limit}"
