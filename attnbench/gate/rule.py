"""The rule that calls a change of time a slowdown, from pairs of fresh processes.

Two statistics are judged, the cost of a typical call and the average over all calls, so that a
slowdown of only some calls is found too.

A change is suspected if the 99 % confidence interval of either excludes 0 and the effect exceeds
the threshold and twice the noise floor, which is base against base in the same pairs. It is called
only if a second stage in fresh processes confirms it, with Benjamini and Hochberg's rule over all
p-values of that stage.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from attnbench.analysis.estimate import student_quantile
from attnbench.analysis.verdict import Verdict, discoveries
from attnbench.gate.finding import TIME, Finding
from attnbench.gate.pairs import FEWEST, LEVEL, Effect, Evidence, Statistic, View, effect
from attnbench.units import change, percent

# two one-sided tests at 5 % each amount to a confidence interval of 90 %
SAMENESS = 0.90
# a machine that cannot exclude a change as large as this never gives the verdict `same`
MAX_USABLE_LIMIT = 0.05
# growth of the spread between calls that is reported
UNEVEN = 0.10
# without a change, medians of one machine on different days differ by less than this
BETWEEN_DAYS = 0.10

JUDGED = (Statistic.TYPICAL, Statistic.AVERAGE)


class Ruling(NamedTuple):
    """The verdict on a case, with the effect and statistic behind it."""

    verdict: Verdict
    effect: Effect
    reason: str
    statistic: Statistic = Statistic.TYPICAL


def suspected(evidence: Evidence, threshold: float) -> bool:
    """Whether the first stage indicates that head differs."""
    return any(evidence.view(statistic).is_suspect(threshold) for statistic in JUDGED)


def settled(evidence: Evidence, threshold: float) -> bool:
    """Whether the first stage shows that head does not differ."""
    if suspected(evidence, threshold):
        return False
    return all(_is_same(evidence, stat, evidence.view(stat).first, threshold) for stat in JUDGED)


def judge(cases: Sequence[Evidence], threshold: float) -> list[Ruling]:
    """The verdict on each case of one check, `slower` or `faster` only after both stages."""
    views = [evidence.view(statistic) for evidence in cases for statistic in JUDGED]
    p_values = [effect(v.second).p if v.is_suspect(threshold) else math.nan for v in views]
    real = discoveries(p_values)
    called = [
        bool(call) and _confirms(view, threshold) for view, call in zip(views, real, strict=True)
    ]
    return [
        _judged(evidence, dict(zip(JUDGED, calls, strict=True)), threshold)
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


def unevenness(evidence: Evidence) -> str:
    """How the slowest calls changed, if differently from a typical call, or nothing."""
    pairs = evidence.first.head + evidence.second.head
    gap = effect([pair.slowest - pair.typical for pair in pairs])
    if not gap.excludes_zero or abs(gap.point) < math.log1p(UNEVEN):
        return ""
    typical, slowest = (
        change(math.exp(effect(logs).point))
        for logs in ([pair.typical for pair in pairs], [pair.slowest for pair in pairs])
    )
    more = "more" if gap.point > 0 else "less"
    return f"calls vary {more} than on base: a typical call {typical}, the slowest tenth {slowest}"


def stored_time_finding(
    mechanism: str, case: str, before: Sequence[float], now: Sequence[float]
) -> Finding:
    """Seconds of each process, stored and now; a change is `unsure` and never fails.

    No interval covers changes of the machine between days: a check of a revision is needed.
    """
    a, b = np.log(before), np.log(now)
    point, half = float(b.mean() - a.mean()), math.inf
    fewer = min(len(a), len(b))
    if fewer > 1:
        error = math.hypot(a.std(ddof=1) / len(a) ** 0.5, b.std(ddof=1) / len(b) ** 0.5)
        half = student_quantile(LEVEL, fewer - 1) * error
    changed = abs(point) > max(half, math.log1p(BETWEEN_DAYS))
    return Finding(
        mechanism=mechanism,
        case=case,
        metric=TIME,
        base=math.exp(a.mean()),
        head=math.exp(b.mean()),
        ratio=math.exp(point),
        low=math.exp(point - half) if half < math.inf else None,
        high=math.exp(point + half) if half < math.inf else None,
        verdict=Verdict.UNSURE if changed else Verdict.SAME,
        reason="stored earlier; --base measures both sides in turns" if changed else "",
    )


def _judged(evidence: Evidence, called: dict[Statistic, bool], threshold: float) -> Ruling:
    if any(called.values()):
        statistic = _shown(evidence, [s for s in JUDGED if called[s]], threshold)
        last = effect(evidence.view(statistic).second)
        verdict = Verdict.SLOWER if last.point > 0 else Verdict.FASTER
        return Ruling(verdict, last, _reason(statistic, unevenness(evidence)), statistic)
    for statistic in JUDGED:
        view = evidence.view(statistic)
        # stage one chose the suspects, so only stage two may clear them; otherwise pool both
        logs = view.second if view.is_suspect(threshold) else view.first + view.second
        if not _is_same(evidence, statistic, logs, threshold):
            shown = effect(logs if len(logs) >= FEWEST else view.first)
            doubt = _reason(statistic, _doubt(view, threshold))
            return Ruling(Verdict.UNSURE, shown, doubt, statistic)
    view = evidence.view(Statistic.TYPICAL)
    logs = view.second if view.is_suspect(threshold) else view.first + view.second
    return Ruling(Verdict.SAME, effect(logs), unevenness(evidence))


def _reason(statistic: Statistic, reason: str) -> str:
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
    whole = effect(view.first + view.second)
    if view.is_suspect(threshold):
        if len(view.second) < FEWEST:
            return "suspected; no time was left to confirm it"
        if not _confirms(view, threshold):
            return f"suspected at first, but a second measurement shows no more than {limit}"
        return "suspected at first; the second measurement is too noisy to confirm it"
    if len(view.first + view.second) < FEWEST:
        return f"only {len(view.first + view.second)} pairs of processes ran"
    if whole.excludes_zero and abs(whole.point) > view.limit(threshold):
        return "not suspected at first; all pairs together show it, and none is left to confirm it"
    if whole.excludes_zero:
        return f"there is a change, but it may be below the limit of {limit}"
    return f"too noisy to exclude a change of {limit}"
