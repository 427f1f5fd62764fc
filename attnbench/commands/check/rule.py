"""The rule that calls a change of time a slowdown, from pairs of fresh processes.

Each pair gives two log ratios of head over base, since a change need not affect every call:

    typical  the median over rounds: the cost of a typical call
    average  of the mean times: the cost of all calls, including a slowdown of only some

Confidence intervals rest on pairs, not on rounds, since rounds of one process share its placement
in memory. Without a change, head and base can be exchanged, so each statistic is symmetric about 0
and Student's interval is not too narrow even where single samples have heavy tails.

A change is suspected if the 99 % confidence interval of the typical or the average call excludes 0
and the effect exceeds the threshold and twice the noise floor, which is base against base in the
same pairs. It is called only if a second look in fresh processes confirms it, with Benjamini and
Hochberg's rule over all p-values of second looks, or if the interval lies beyond three times the
threshold and a second look was too short to decide.

`Same` excludes a change that counts: beyond the threshold, or beyond twice the noise floor where
that is more, which the reason says; and of the average call beyond `MAX_USABLE_LIMIT`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from attnbench.analysis import Verdict
from attnbench.analysis.statistics.estimate import p_value, student_quantile
from attnbench.analysis.statistics.verdict import discoveries
from attnbench.records.units import change, percent

LEVEL = 0.99
FLOORS = 2.0  # noise floors that an effect must exceed
FEWEST = 3  # pairs below which there is no verdict
# thresholds beyond which a change is called even if there was no time to confirm it
CLEAR = 3.0
# a sample counts for at most this many medians of its process, so that one stall moves no mean
BOUND = 3.0
# two one-sided tests at 5 % each amount to a confidence interval of 90 %
SAMENESS = 0.90
# the same where fewer pairs are taken than planned, as soon as they suffice: who looks again after
# each pair finds them the same by chance more often
EARLY = 0.95
# a machine that cannot exclude a change as large as this never gives the verdict `same`
MAX_USABLE_LIMIT = 0.05

# A difference that shows in every pair needs no interval: the slower side's fastest sample takes
# this many times as long as the other's slowest one. Where a process lies in memory changes its
# times by 5 %, and base against base must lie apart too. Of a single pair more is asked.
EVIDENT = 2.0
EVIDENT_ALONE = 10.0

UNCONFIRMED = "no time was left to confirm"

Logs: TypeAlias = tuple[float, ...]


class Statistic(StrEnum):
    """A statistic of a pair."""

    TYPICAL = "typical"
    AVERAGE = "average"


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


class Ruling(NamedTuple):
    """The verdict on a case, with the effect and statistic behind it."""

    verdict: Verdict
    effect: Effect
    reason: str
    statistic: Statistic = Statistic.TYPICAL


@dataclass(frozen=True)
class View:
    """One statistic of a case: log ratios of both looks, and of base over base."""

    statistic: Statistic
    threshold: float
    first: Logs
    second: Logs = ()
    again: Logs = ()

    @property
    def floor(self) -> float:
        """The noise floor: the mean of base against base, or its standard error if larger."""
        if len(self.again) < FEWEST:
            return 0.0
        error = float(np.std(self.again, ddof=1)) / math.sqrt(len(self.again))
        return max(abs(float(np.mean(self.again))), error)

    @cached_property
    def limit(self) -> float:
        """The log ratio below which a change is ignored."""
        return max(math.log1p(self.threshold), FLOORS * self.floor)

    @cached_property
    def first_change(self) -> Effect:
        """The effect in the first look."""
        return effect(self.first)

    @cached_property
    def second_change(self) -> Effect:
        """The effect in the second look."""
        return effect(self.second)

    @property
    def is_suspect(self) -> bool:
        """Whether the first look indicates that head differs."""
        return self.first_change.excludes_zero and abs(self.first_change.point) > self.limit

    @property
    def lacks_second(self) -> bool:
        """Whether the second look was too short to decide anything."""
        return len(self.second) < FEWEST

    @property
    def is_confirmed(self) -> bool:
        """Whether the second look confirms the suspicion of the first, in both memory layouts."""
        return (
            self.first_change.point * self.second_change.point > 0
            and abs(self.second_change.point) > self.limit
            and self.shows_in_layouts
        )

    @property
    def shows_in_layouts(self) -> bool:
        """Whether the second look shows at least half the limit in each of its memory layouts.

        Pairs take them by turns. Where a process lies in memory favours one code over another by a
        few percent, in all pairs of a layout alike.
        """
        sign = math.copysign(1.0, self.second_change.point)
        layouts = (self.second[0::2], self.second[1::2])
        return all(sign * sum(logs) / len(logs) > self.limit / 2 for logs in layouts if logs)

    @property
    def is_clear(self) -> bool:
        """Whether a suspicion that no second look refutes is far beyond the threshold."""
        far = max(self.first_change.low, -self.first_change.high) > math.log1p(
            CLEAR * self.threshold
        )
        return far and self.is_suspect and (self.lacks_second or self.is_confirmed)

    @property
    def deciding_logs(self) -> Logs:
        """What may clear the case: the second look alone if the first made it a suspect."""
        return self.second if self.is_suspect else self.first + self.second

    def is_same(self, logs: Logs, level: float = SAMENESS) -> bool:
        """Whether these log ratios exclude a change that counts, by an interval of this level."""
        usable = math.log1p(max(self.threshold, MAX_USABLE_LIMIT))
        if self.limit > usable:
            return False
        # the average is noisier, and only has to exclude what the typical call does not show
        limit = usable if self.statistic is Statistic.AVERAGE else self.limit
        interval = effect(logs, level)
        return -limit <= interval.low and interval.high <= limit

    @property
    def allowance(self) -> str:
        """What is ignored of this case beyond the threshold, in words; empty where nothing is."""
        if self.limit <= math.log1p(self.threshold):
            return ""
        return f"its noise hides changes below {percent(math.expm1(self.limit))}"

    def ruling(self, shown: Effect, reason: str = "", verdict: Verdict | None = None) -> Ruling:
        """This statistic as the one behind a verdict; without one, head is slower or faster."""
        about = "on average over all calls" if self.statistic is Statistic.AVERAGE else ""
        reasons = "; ".join(filter(None, (about, reason)))
        called = Verdict.SLOWER if shown.point > 0 else Verdict.FASTER
        return Ruling(verdict or called, shown, reasons, self.statistic)

    @property
    def doubt(self) -> str:
        """Why the change is neither called nor excluded."""
        if self.is_suspect:
            refuted = "suspected at first; a second measurement does not confirm it"
            return UNCONFIRMED if self.lacks_second else refuted
        limit = percent(math.expm1(self.limit))
        effect_so_far = effect(self.first + self.second)
        if effect_so_far.excludes_zero:
            return f"there is a change, but it need not exceed the limit of {limit}"
        if not math.isfinite(effect_so_far.high):
            return f"too few pairs to exclude a change of {limit}"
        return f"could be {change(math.exp(effect_so_far.high))}, where {limit} counts"


def effect(logs: Sequence[float], level: float = LEVEL) -> Effect:
    """The mean of the pairs' log ratios; NaN and unbounded for fewer than three."""
    if len(logs) < FEWEST:
        return Effect(math.nan, -math.inf, math.inf, math.nan)
    point = float(np.mean(logs))
    error = float(np.std(logs, ddof=1)) / math.sqrt(len(logs))
    half = student_quantile(level, len(logs) - 1) * error
    return Effect(point, point - half, point + half, p_value(point, error, len(logs) - 1))


def log_ratio(statistic: Statistic, base: Sequence[float], head: Sequence[float]) -> float:
    """Head over base in one pair of processes, from the seconds of their samples in order.

    A round has two samples of each side.
    """
    if statistic is Statistic.AVERAGE:
        return math.log(mean(head) / mean(base))
    of_base, of_head = (np.reshape(times, (-1, 2)).mean(axis=1) for times in (base, head))
    return float(np.median(np.log(of_head / of_base)))


def mean(times: Sequence[float]) -> float:
    """The mean of the samples of one process, each bounded at `BOUND` medians."""
    return float(np.minimum(times, BOUND * np.median(times)).mean())


def evident_verdict(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Verdict | None:
    """The verdict where every sample of one side took far longer than every one of the other.

    Each pair of processes has the seconds of base and of head. None where they are not that far
    apart, or not in all pairs.
    """
    factor = EVIDENT if len(pairs) > 1 else EVIDENT_ALONE
    if not pairs:
        return None
    if all(min(head) > factor * max(base) for base, head in pairs):
        return Verdict.SLOWER
    if all(min(base) > factor * max(head) for base, head in pairs):
        return Verdict.FASTER
    return None


def is_suspected(case: Sequence[View]) -> bool:
    """Whether the first look indicates that head differs."""
    return any(view.is_suspect for view in case)


def is_settled(case: Sequence[View], level: float = SAMENESS) -> bool:
    """Whether what was measured shows that head does not differ, by intervals of this level."""
    return all(view.is_same(view.deciding_logs, level) and not view.is_suspect for view in case)


def is_confirmed(case: Sequence[View]) -> bool:
    """Whether the second look confirms what the first one suspects, beside whatever other cases."""
    return any(
        view.is_suspect and view.is_confirmed and view.second_change.p <= 1 - LEVEL for view in case
    )


def rulings(cases: Sequence[Sequence[View]]) -> list[Ruling]:
    """The verdict on each case of one check, of which both statistics are given."""
    p_values = [
        view.second_change.p if view.is_suspect else math.nan for views in cases for view in views
    ]
    real = iter(discoveries(p_values))
    return [_ruling(views, [v for v in views if next(real) and v.is_confirmed]) for views in cases]


def _ruling(views: Sequence[View], called: Sequence[View]) -> Ruling:
    """The ruling from both statistics of a case, and those of which the change is called."""
    if called:
        typical = called[0]
        average = called[-1]
        gap = effect([a - t for a, t in zip(average.second, typical.second, strict=True)])
        differs = gap.excludes_zero and abs(gap.point) > math.log1p(typical.threshold)
        view_shown = average if differs else typical
        return view_shown.ruling(view_shown.second_change)
    for view in views:
        if view.is_clear:
            return view.ruling(view.first_change, UNCONFIRMED if view.lacks_second else "")
    for view in views:
        logs = view.deciding_logs
        if not view.is_same(logs):
            effect_so_far = effect(logs) if len(logs) >= FEWEST else view.first_change
            return view.ruling(effect_so_far, view.doubt, Verdict.UNSURE)
    typical = views[0]
    return typical.ruling(effect(typical.deciding_logs), typical.allowance, Verdict.SAME)
