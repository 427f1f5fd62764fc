"""What the layers of a model cost, from a sweep that measured one layer of each kind.

Kinds that one mechanism computes share its times, each with its own number of layers. In a round
the kinds took turns, so drift falls on all of them alike. A round gives one sum and one share of
each kind, medians over its pairs of laps, as it gives one time of each.
Estimates and 95 % confidence intervals are over rounds, as those of all times.
"""

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from statistics import median
from typing import Any, NamedTuple, TypeVar

from attnbench.analysis.concluding import crossovers
from attnbench.analysis.conclusions import Conclusion, Question
from attnbench.analysis.report import Analysis
from attnbench.analysis.statistics.curves import series_names
from attnbench.analysis.statistics.estimate import Estimate, over_rounds
from attnbench.analysis.statistics.laps import Laps, by_pair, sweep_slope
from attnbench.analysis.summary import Row
from attnbench.records import Case, Mode, Outcome, Part, Selection, Sweep
from attnbench.records.selection import layers

DECODE = Mode("decode")
UNKNOWN = Estimate()
ENDS = ("point", "low", "high")

Key = TypeVar("Key", bound=Hashable)


class MeasuredAt(NamedTuple):
    """Where layers are measured; `step`: the last tokens of the length, which a step takes."""

    mode: str
    seq_len: int
    step: int = 1


class LayerKind(NamedTuple):
    """The layers of one kind, in words that no other kind of the model has, and their number.

    `mechanism` computes one of them, as `--models` has it; without one, `reason` says why, or is
    empty for layers without attention. All of them keep `per_token` bytes of each token, and
    `kept` in all at each length.
    """

    words: str
    layers: int
    mechanism: str
    reason: str
    per_token: float
    kept: Mapping[int, int]


class Times(NamedTuple):
    """Seconds of all layers of each kind, by its words, and their share of the sum, and the sum.

    A sum is there where every kind that has a mechanism was timed in a round; seconds and shares
    are then of such rounds alone, so that the sum is that of its kinds and the shares make 1.
    """

    seconds: Mapping[tuple[str, MeasuredAt], Estimate]
    shares: Mapping[tuple[str, MeasuredAt], Estimate]
    sums: Mapping[MeasuredAt, Estimate]


class ModelCosts:
    """The costs of all layers of each of the `kinds`.

    `places` are those of the sweep: single steps first, then longer ones, from short to long.
    `mechanisms` are those of each series of the sweep, as `kinds` have them.
    """

    def __init__(self, analysis: Analysis, kinds: Sequence[LayerKind]) -> None:
        self.analysis = analysis
        self.kinds = kinds
        plan = analysis.sweep.plan
        names = series_names(plan)
        chosen = {kind.mechanism for kind in kinds if kind.mechanism}
        matching = {
            names[one.case.key]: mechanism
            for one in plan
            if (mechanism := mechanism_of(one.case, chosen)) is not None
        }
        self.mechanisms: Mapping[str, str] = matching
        self.rows = {
            (matching[row["series"]], place_of(row)): row
            for _, row in analysis.cases.iterrows()
            if row["series"] in matching
        }
        places = {place for _, place in self.rows}
        self.places = sorted(places, key=lambda p: (p.mode != DECODE, p.step, p.seq_len))

    @property
    def lacking(self) -> list[LayerKind]:
        """The kinds that can be measured and have no case in the sweep."""
        known = {mechanism for mechanism, _ in self.rows}
        return [kind for kind in self.kinds if kind.mechanism and kind.mechanism not in known]

    @property
    def steps(self) -> list[MeasuredAt]:
        """The contexts after which the shortest step was planned."""
        return [p for p in self.places if p.mode == DECODE and p.step == self.places[0].step]

    @property
    def main(self) -> list[MeasuredAt]:
        """Those of the shortest step; without steps, all places."""
        return self.steps or self.places

    @property
    def stepping(self) -> set[str]:
        """The series of the shortest step."""
        cases = self.analysis.cases
        return {*cases.loc[cases["step"] == self.places[0].step, "series"]}

    @property
    def several(self) -> bool:
        """Whether more than one mechanism was measured."""
        return len({*self.mechanisms.values()}) > 1

    @cached_property
    def times(self) -> Times:
        """The times of the layers that can be measured, and their sum."""
        names = {
            key: self.mechanisms[name]
            for key, name in series_names(self.analysis.sweep.plan).items()
            if name in self.mechanisms
        }
        return times(self.analysis.sweep, names, self.kinds)

    def case(self, index: int, place: MeasuredAt) -> Row | None:
        """The row of `summary` of one layer of a kind."""
        return self.rows.get((self.kinds[index].mechanism, place))

    def measured(self, place: MeasuredAt) -> bool:
        """Whether any layer was timed there."""
        return any((kind.words, place) in self.times.seconds for kind in self.kinds)

    def flops(self, index: int, place: MeasuredAt) -> float:
        """The FLOPs of one iteration of all layers of a kind; NaN where unknown."""
        case = self.case(index, place)
        return math.nan if case is None else float(case["flops"]) * self.kinds[index].layers

    def all_flops(self, place: MeasuredAt) -> float:
        """The FLOPs of one iteration of all kinds that can be measured; NaN if one's are."""
        every = range(len(self.kinds))
        return math.fsum(self.flops(i, place) for i in every if self.kinds[i].mechanism)

    @property
    def largest(self) -> int:
        """The kind of those measured whose layers keep most of each token."""
        kept = [kind.per_token / kind.layers for kind in self.kinds]
        return max(range(len(kept)), key=lambda i: (self.kinds[i].mechanism != "", kept[i]))

    def pays_from(self, index: int) -> Conclusion | None:
        """At which contexts a step of this kind costs less than one of the largest."""
        one = self.kinds[index].mechanism
        other = self.kinds[self.largest].mechanism
        known = [
            each
            for each in self.analysis.about(Question.FASTER_FROM, DECODE)
            if each.series[0] in self.stepping
            and self.mechanisms.get(each.series[0]) == one
            and self.mechanisms.get(each.against[0]) == other
        ]
        return known[0] if known else None

    def records(self) -> Iterator[dict[str, Any]]:
        """Everything about each kind as data."""
        for index, kind in enumerate(self.kinds):
            conclusion = self.pays_from(index)
            costs = [{**self.cost(index, place)} for place in self.places]
            pays = None if conclusion is None else crossovers([conclusion]).iloc[0].to_dict()
            yield {**kind._asdict(), "pays_from": pays, "costs": costs}

    def cost(self, index: int, place: MeasuredAt) -> dict[str, Any]:
        """The numbers of all layers of a kind in one place."""
        key = self.kinds[index].words, place
        time, share = (
            ends(name, known.get(key, UNKNOWN))
            for name, known in (("time", self.times.seconds), ("share", self.times.shares))
        )
        return {**place._asdict(), "flops": self.flops(index, place), **time, **share}

    def sums(self) -> Iterator[dict[str, Any]]:
        """The sum of the kinds that can be measured, in each place where all of them were."""
        for place in [place for place in self.places if place in self.times.sums]:
            yield {**place._asdict(), **ends("time", self.times.sums[place])}


def place_of(row: Row) -> MeasuredAt:
    """The place of a row of `summary`."""
    return MeasuredAt(str(row["mode"]), int(row["seq_len"]), int(row["step"]))


def ends(name: str, estimate: Estimate) -> dict[str, float]:
    """An estimate with its interval as data."""
    return {f"{name}_{end}": getattr(estimate, end) for end in ENDS}


def mechanism_of(case: Case, mechanisms: Iterable[str]) -> str | None:
    """Which of the mechanisms, as `--models` has them, a case is of, alone or several in a row.

    A case leaves out options that are the mechanism's defaults. None if it is of none of them, or
    could be of two.
    """
    stacked = layers(case.mechanism)
    if stacked:
        return str(stacked[0]) if str(stacked[0]) in mechanisms else None
    further: dict[str, int] = {}
    for mechanism in mechanisms:
        chosen = Selection.read(mechanism)
        if chosen.name == case.mechanism and {*case.options} <= {*chosen.options}:
            further[mechanism] = len(chosen.options) - len(case.options)
    least = [name for name, more in further.items() if more == min(further.values())]
    return least[0] if len(least) == 1 else None


def times(sweep: Sweep, names: Mapping[str, str], kinds: Sequence[LayerKind]) -> Times:
    """The times of a model with these kinds of layers; `names` are the mechanisms of each case."""
    chosen = [kind for kind in kinds if kind.mechanism]
    wanted = {kind.mechanism for kind in chosen}
    seconds: dict[tuple[str, MeasuredAt], list[float]] = {}
    shares: dict[tuple[str, MeasuredAt], list[float]] = {}
    sums: dict[MeasuredAt, list[float]] = {}
    for place, rounds in by_round(sweep, names).items():
        whole = {
            number: totals
            for number, own in rounds.items()
            if wanted and wanted <= own.keys() and (totals := summed(own, counted(chosen)))
        }
        if whole:
            sums[place] = [median(totals.values()) for totals in whole.values()]
        for number in whole or rounds:
            for kind in chosen:
                if (laps := rounds[number].get(kind.mechanism)) is None:
                    continue
                seconds.setdefault((kind.words, place), []).append(
                    kind.layers * median(laps.values())
                )
                if number in whole:
                    totals = whole[number]
                    parts = [kind.layers * laps[pair] / total for pair, total in totals.items()]
                    shares.setdefault((kind.words, place), []).append(median(parts))
    return additive(Times(estimated(seconds), estimated(shares), estimated(sums)))


def counted(kinds: Iterable[LayerKind]) -> dict[str, int]:
    """How many layers each mechanism computes, over all kinds that it does."""
    counts: dict[str, int] = {}
    for kind in kinds:
        counts[kind.mechanism] = counts.get(kind.mechanism, 0) + kind.layers
    return counts


def additive(estimates: Times) -> Times:
    """The same with sums that are the sums of their kinds, and shares that are of these sums.

    A median of sums is not quite the sum of medians, nor is a mean of logarithms: where noise is
    large, a column would not add up. Intervals keep their relative width, that of paired laps.
    """
    sums: dict[MeasuredAt, Estimate] = {}
    shares: dict[tuple[str, MeasuredAt], Estimate] = {}
    for place, one in estimates.sums.items():
        parts = {key: own.point for key, own in estimates.seconds.items() if key[1] == place}
        total = math.fsum(parts.values())
        sums[place] = moved(one, total)
        for key, part in parts.items():
            shares[key] = moved(estimates.shares[key], part / total)
    return Times(estimates.seconds, shares, sums)


def moved(estimate: Estimate, point: float) -> Estimate:
    """The estimate with another point, and the relative width of its interval."""
    factor = point / estimate.point
    return replace(estimate, point=point, low=estimate.low * factor, high=estimate.high * factor)


def summed(laps: Mapping[str, Laps], counts: Mapping[str, int]) -> Laps:
    """Seconds of so many layers of each mechanism, in the pairs of laps that all of them have."""
    shared = set.intersection(*({*laps[name]} for name in counts))
    return {pair: math.fsum(n * laps[name][pair] for name, n in counts.items()) for pair in shared}


def by_round(
    sweep: Sweep, names: Mapping[str, str]
) -> dict[MeasuredAt, dict[int, dict[str, Laps]]]:
    """Seconds of one layer in each pair of laps, by place, round and the name of the case."""
    planned = {one.case.key: one for one in sweep.plan}
    slope = sweep_slope(sweep.runs, {key: one.block for key, one in planned.items()})
    found: dict[MeasuredAt, dict[int, dict[str, Laps]]] = {}
    for run in sweep.runs:
        timed = run.part is Part.TIME and run.outcome is Outcome.OK and run.case in names
        if timed and (pairs := by_pair(run.samples, slope)):
            w = planned[run.case].case.workload
            depth = planned[run.case].depth
            rounds = found.setdefault(MeasuredAt(str(w.mode), w.seq_len, w.step), {})
            own = {pair: seconds / depth for pair, seconds in pairs.items()}
            rounds.setdefault(run.round, {})[names[run.case]] = own
    return found


def estimated(rounds: Mapping[Key, Sequence[float]]) -> dict[Key, Estimate]:
    """The estimate of each positive number over its rounds; without an interval after one."""
    logs = [[math.log(value) for value in own] for own in rounds.values()]
    once = [Estimate(point=math.exp(math.fsum(own) / len(own))) for own in logs]
    return dict(zip(rounds, over_rounds(logs) or once, strict=True))
