"""How many pairs of processes each case needs, and which case is timed next.

Every case gets one pair first. What more it needs follows from how noisy its pairs are: base
against base is measured in each of them, so that already the first one tells something. Then what
seems to have changed is timed until that is confirmed or refuted, and of the rest first what is
nearest to a verdict, so that a budget gives as many verdicts as it can.

Where the budget is enough for all pairs that are planned, every case gets those of a first look
before anything is decided. Where it is not, a case that is the same beyond doubt needs no more.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from attnbench.analysis.statistics.estimate import student_quantile
from attnbench.commands.check import rule
from attnbench.commands.check.cases import CheckedCase, CheckPlan
from attnbench.commands.check.rule import Logs, Statistic, View

# pairs before anything is decided early: two in each memory layout
EARLIEST = 4
# pairs in a second look before it can confirm a suspicion early
EARLIEST_SECOND = 5
# of the budget, that what every case gets before anything is decided may take
FIRST_SHARE = 0.5
# pairs' worth of other cases that the spread of one case is mixed with: a few pairs alone tell
# their spread within a factor of three
PRIOR = 4.0
USUAL = 0.01  # spread of a pair's log ratio on a shared machine, until something is measured
# standard errors from 0 beyond which a change is likely; of few pairs more, since tails are heavy
LIKELY = 3.0
LIKELY_OF_FEW = 6.0


@dataclass(frozen=True, kw_only=True)
class Need:
    """What a case needs until a verdict: pairs, and the look (0 or 1) of the next of them.

    `pairs` is infinite if as many as the plan allows would probably give none. `changed` says
    whether a change is likely, by `size`, a log ratio.
    """

    pairs: float
    look: int
    changed: bool = False
    size: float = 0.0

    @property
    def is_met(self) -> bool:
        """Whether the case has its verdict, or all pairs that it may have."""
        return self.pairs <= 0


@dataclass(frozen=True, kw_only=True)
class Allotment:
    """By which numbers of pairs a check decides.

    `earliest` pairs come before anything is decided; a suspicion is confirmed by as many as are
    planned if it is `whole`, else by as many as it probably takes.
    """

    plan: CheckPlan
    earliest: int
    whole: bool

    @classmethod
    def for_pairs(cls, plan: CheckPlan, pairs: float) -> "Allotment":
        """The allotment where there is time for that many pairs of every case."""
        first, second = plan.looks
        affordable = first if math.isinf(pairs) else int(FIRST_SHARE * pairs)
        earliest = min(first, max(EARLIEST, affordable))
        return cls(plan=plan, earliest=earliest, whole=pairs >= first + second / 2)

    def need(self, case: CheckedCase, spreads: Mapping[Statistic, float]) -> Need:
        """What a case needs; `spreads` are those of the pairs of all cases, by statistic."""
        views = case.views(self.plan.threshold)
        changed, size = apparent_change(views, spreads)
        first, second = map(len, case.looks)
        if first < min(self.earliest, self.plan.looks[0]):
            pairs = max(self.earliest, pairs_needed(views, spreads, self.plan.most)) - first
            return Need(pairs=pairs, look=0, changed=changed, size=size)
        if rule.is_suspected(views):
            return self.need_of_suspect(views, spreads)
        level = rule.SAMENESS if first >= self.plan.looks[0] and not second else rule.EARLY
        if rule.is_settled(views, level) or first + second >= self.plan.most:
            return Need(pairs=0, look=1)
        look = 0 if first < self.plan.looks[0] else 1
        pairs = max(1.0, pairs_needed(views, spreads, self.plan.most) - first - second)
        return Need(pairs=pairs, look=look, changed=changed, size=size)

    def need_of_suspect(self, views: Sequence[View], spreads: Mapping[Statistic, float]) -> Need:
        """What a case still needs that the first look made a suspect."""
        planned = self.plan.looks[1]
        pairs_done = len(views[0].second)
        size = max(abs(view.first_change.point) for view in views if view.is_suspect)
        pairs = planned if self.whole else min(planned, pairs_to_confirm(views, spreads, planned))
        decided = rule.is_confirmed(views) or all(
            view.is_same(view.deciding_logs) for view in views
        )
        if pairs_done >= planned or (pairs_done == pairs and decided):
            return Need(pairs=0, look=1)
        left = pairs - pairs_done if pairs_done < pairs else planned - pairs_done
        return Need(pairs=left, look=1, changed=True, size=size)


def spread_of(view: View) -> tuple[float, int]:
    """The sum of squares of the log ratios of one statistic, and its degrees of freedom.

    Those of each look count about their mean, those of base against base about 0.
    """
    total = sum(log * log for log in view.again)
    freedom = len(view.again)
    for look in (view.first, view.second):
        if len(look) > 1:
            middle = sum(look) / len(look)
            total += sum((log - middle) ** 2 for log in look)
            freedom += len(look) - 1
    return total, freedom


def usual_spread(cases: Sequence[Sequence[View]]) -> dict[Statistic, float]:
    """The spread (standard deviation) of a pair's log ratio, in the middle of all cases."""
    spreads = dict[Statistic, float]()
    for statistic in Statistic:
        measured = [
            math.sqrt(total / freedom)
            for views in cases
            for view in views
            if view.statistic is statistic
            for total, freedom in [spread_of(view)]
            if freedom
        ]
        spreads[statistic] = median(measured) if measured else USUAL
    return spreads


def deviation(view: View, spreads: Mapping[Statistic, float]) -> float:
    """The spread of a case's log ratios, mixed with the usual one as far as it is little known."""
    total, freedom = spread_of(view)
    return math.sqrt((PRIOR * spreads[view.statistic] ** 2 + total) / (PRIOR + freedom))


def probable_change(logs: Logs, spread: float) -> float:
    """By how much head probably differs: their mean, less what its noise alone would make of 0."""
    if not logs:
        return 0.0
    middle = sum(logs) / len(logs)
    noise = spread * spread / len(logs)
    return middle * max(0.0, 1.0 - noise / (middle * middle)) if middle else 0.0


def apparent_change(
    views: Sequence[View], spreads: Mapping[Statistic, float]
) -> tuple[bool, float]:
    """Whether a case has probably changed, and by how much, a log ratio without sign."""
    size = 0.0
    changed = False
    for view in views:
        logs = view.first + view.second
        if not logs:
            continue
        spread = deviation(view, spreads)
        point = abs(sum(logs) / len(logs))
        size = max(size, abs(probable_change(logs, spread)))
        factor = LIKELY if len(logs) >= rule.FEWEST else LIKELY_OF_FEW
        changed |= point > max(math.log1p(view.threshold), factor * spread / math.sqrt(len(logs)))
    return changed, size


def pairs_needed(views: Sequence[View], spreads: Mapping[Statistic, float], most: int) -> float:
    """Pairs of both looks, with those there are, after which a case probably has a verdict.

    Infinite if more than `most` would be needed.
    """
    pairs_if_same = max(pairs_to_exclude(view, deviation(view, spreads), most) for view in views)
    pairs_if_changed = min(pairs_to_suspect(view, deviation(view, spreads), most) for view in views)
    return min(pairs_if_same, pairs_if_changed + pairs_to_confirm(views, spreads, most))


def pairs_to_exclude(view: View, spread: float, most: int) -> float:
    """Pairs after which one statistic probably excludes a change; infinite if beyond `most`."""
    point = abs(probable_change(view.first + view.second, spread))
    usable = math.log1p(max(view.threshold, rule.MAX_USABLE_LIMIT))
    for pairs in range(EARLIEST, most + 1):
        error = spread / math.sqrt(pairs)
        limit = max(math.log1p(view.threshold), rule.FLOORS * error)
        widest = usable if view.statistic is Statistic.AVERAGE else limit
        half = student_quantile(rule.SAMENESS, pairs - 1) * error
        if limit <= usable and point + half <= widest:
            return pairs
    return math.inf


def pairs_to_suspect(view: View, spread: float, most: int) -> float:
    """Pairs after which one statistic is probably suspected; infinite if beyond `most`."""
    point = abs(probable_change(view.first + view.second, spread))
    for pairs in range(EARLIEST, most + 1):
        error = spread / math.sqrt(pairs)
        limit = max(math.log1p(view.threshold), rule.FLOORS * error)
        if point > max(limit, student_quantile(rule.LEVEL, pairs - 1) * error):
            return pairs
    return math.inf


def pairs_to_confirm(views: Sequence[View], spreads: Mapping[Statistic, float], most: int) -> float:
    """Pairs of a second look after which a change as large as the first look's is confirmed."""
    fewest = math.inf
    for view in views:
        spread = deviation(view, spreads)
        point = abs(probable_change(view.first, spread)) - math.log1p(view.threshold)
        for pairs in range(EARLIEST_SECOND, most + 1):
            if point > student_quantile(rule.LEVEL, pairs - 1) * spread / math.sqrt(pairs):
                fewest = min(fewest, pairs)
                break
    return fewest
