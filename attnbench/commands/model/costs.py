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

from attnbench.analysis import Analysis, Conclusion, Estimate, Question, Row
from attnbench.analysis.concluding import crossovers
from attnbench.analysis.statistics.curves import series_names
from attnbench.analysis.statistics.estimate import over_rounds
from attnbench.analysis.statistics.laps import Laps, by_pair, sweep_slope
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
    `kept` in all at each length. `feeds`: whether it is the feed-forward of so many layers.
    """

    words: str
    layers: int
    mechanism: str
    reason: str
    per_token: float
    kept: Mapping[int, int]
    feeds: bool = False


class Times(NamedTuple):
    """Seconds of all layers of each kind, by its words, and their share of the sum, and the sum.

    A sum is there where every kind that has a mechanism was timed in a round; seconds and shares
    are then of such rounds alone, so that the sum is that of its kinds and the shares make 1.
    `ratios` are of the layers without their feed-forwards over these, where both are in the sum.
    """

    seconds: Mapping[tuple[str, MeasuredAt], Estimate]
    shares: Mapping[tuple[str, MeasuredAt], Estimate]
    sums: Mapping[MeasuredAt, Estimate]
    ratios: Mapping[MeasuredAt, Estimate]


class AttentionShare(NamedTuple):
    """Seconds of all layers but their feed-forwards, of these, and the share of the former.

    `share` has the interval of the ratio of the two, which were paired.
    """

    place: MeasuredAt
    attention: float
    feed_forwards: float
    share: Estimate


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
            names[planned.case.key]: mechanism
            for planned in plan
            if (mechanism := mechanism_of(planned.case, chosen)) is not None
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
    def kinds_without_case(self) -> list[LayerKind]:
        """The kinds that can be measured and have no case in the sweep."""
        measured_mechanisms = {mechanism for mechanism, _ in self.rows}
        return [
            kind
            for kind in self.kinds
            if kind.mechanism and kind.mechanism not in measured_mechanisms
        ]

    @property
    def steps(self) -> list[MeasuredAt]:
        """The contexts after which the shortest step was planned."""
        return [p for p in self.places if p.mode == DECODE and p.step == self.places[0].step]

    @property
    def summed_steps(self) -> list[MeasuredAt]:
        """Those of them at which every kind that can be measured was."""
        return [place for place in self.steps if place in self.times.sums]

    @property
    def main_places(self) -> list[MeasuredAt]:
        """Those of the shortest step; without steps, all places."""
        return self.steps or self.places

    @property
    def step_series(self) -> set[str]:
        """The series of the shortest step."""
        cases = self.analysis.cases
        return {*cases.loc[cases["step"] == self.places[0].step, "series"]}

    @property
    def has_several_mechanisms(self) -> bool:
        """Whether more than one mechanism was measured."""
        return len({*self.mechanisms.values()}) > 1

    @property
    def compares_steps(self) -> bool:
        """Whether steps of several mechanisms were measured, of which one may pay at a context."""
        mixers = {kind.mechanism for kind in self.kinds if not kind.feeds}
        return bool(self.steps) and len(mixers & {*self.mechanisms.values()}) > 1

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

    def is_measured(self, place: MeasuredAt) -> bool:
        """Whether any layer was timed there."""
        return any((kind.words, place) in self.times.seconds for kind in self.kinds)

    def flops(self, index: int, place: MeasuredAt) -> float:
        """The FLOPs of one iteration of all layers of a kind; NaN where unknown."""
        case = self.case(index, place)
        if case is None:
            return math.nan
        return float(case["flops"] / case["depth"]) * self.kinds[index].layers

    def all_flops(self, place: MeasuredAt) -> float:
        """The FLOPs of one iteration of all kinds that can be measured; NaN if one's are."""
        every = range(len(self.kinds))
        return math.fsum(self.flops(i, place) for i in every if self.kinds[i].mechanism)

    @property
    def largest_kind(self) -> int:
        """The kind of those measured whose layers keep most of each token."""
        bytes_per_layer = [kind.per_token / kind.layers for kind in self.kinds]
        candidates = [i for i, kind in enumerate(self.kinds) if not kind.feeds] or range(
            len(bytes_per_layer)
        )
        return max(candidates, key=lambda i: (self.kinds[i].mechanism != "", bytes_per_layer[i]))

    def pays_from(self, index: int) -> Conclusion | None:
        """At which contexts a step of this kind costs less than one of the largest."""
        if self.kinds[index].feeds:
            return None
        mechanism = self.kinds[index].mechanism
        other = self.kinds[self.largest_kind].mechanism
        conclusions = [
            conclusion
            for conclusion in self.analysis.about(Question.FASTER_FROM, DECODE)
            if conclusion.series[0] in self.step_series
            and self.mechanisms.get(conclusion.series[0]) == mechanism
            and self.mechanisms.get(conclusion.against[0]) == other
        ]
        return conclusions[0] if conclusions else None

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
            estimate_data(name, known.get(key, UNKNOWN))
            for name, known in (("time", self.times.seconds), ("share", self.times.shares))
        )
        return {**place._asdict(), "flops": self.flops(index, place), **time, **share}

    @property
    def is_whole_model(self) -> bool:
        """Whether every layer and every feed-forward of the model can be measured."""
        return not any(kind.reason for kind in self.kinds)

    def attention_shares(self) -> Iterator[AttentionShare]:
        """The share of all layers but their feed-forwards, in each place where all were timed.

        None of a model of which something cannot be measured: that would be of no step of it.
        """
        for place in self.places if self.is_whole_model else ():
            if ratio := self.times.ratios.get(place):
                feeds = self.times.sums[place].point / (1 + ratio.point)
                yield AttentionShare(place, ratio.point * feeds, feeds, share_of(ratio))

    def shares(self) -> Iterator[dict[str, Any]]:
        """The same as data."""
        for share in self.attention_shares():
            seconds = {"attention_time": share.attention, "feed_forward_time": share.feed_forwards}
            yield {
                **share.place._asdict(),
                **seconds,
                **estimate_data("attention_share", share.share),
            }

    def sums(self) -> Iterator[dict[str, Any]]:
        """The sum of the kinds that can be measured, in each place where all of them were."""
        for place in [place for place in self.places if place in self.times.sums]:
            yield {**place._asdict(), **estimate_data("time", self.times.sums[place])}


def place_of(row: Row) -> MeasuredAt:
    """The place of a row of `summary`."""
    return MeasuredAt(str(row["mode"]), int(row["seq_len"]), int(row["step"]))


def estimate_data(name: str, estimate: Estimate) -> dict[str, float]:
    """An estimate with its interval as data."""
    return {f"{name}_{end}": getattr(estimate, end) for end in ENDS}


def share_of(ratio: Estimate) -> Estimate:
    """What part of two together the first is, by their ratio; between 0 and 1, as its interval."""
    point, low, high = (
        1.0 if math.isinf(end) else end / (1 + end) for end in (ratio.point, ratio.low, ratio.high)
    )
    return Estimate(point=point, low=low, high=high, kind=ratio.kind, df=ratio.df)


def mechanism_of(case: Case, mechanisms: Iterable[str]) -> str | None:
    """Which of the mechanisms, as `--models` has them, a case is of, alone or several in a row.

    A case leaves out options that are the mechanism's defaults. None if it is of none of them, or
    could be of two.
    """
    stack = layers(case.mechanism)
    if stack:
        return str(stack[0]) if str(stack[0]) in mechanisms else None
    extra_options: dict[str, int] = {}
    for mechanism in mechanisms:
        chosen = Selection.read(mechanism)
        if chosen.name == case.mechanism and {*case.options} <= {*chosen.options}:
            extra_options[mechanism] = len(chosen.options) - len(case.options)
    least = [name for name, more in extra_options.items() if more == min(extra_options.values())]
    return least[0] if len(least) == 1 else None


def times(sweep: Sweep, names: Mapping[str, str], kinds: Sequence[LayerKind]) -> Times:
    """The times of a model with these kinds of layers; `names` are the mechanisms of each case."""
    chosen = [kind for kind in kinds if kind.mechanism]
    mechanisms = {kind.mechanism for kind in chosen}
    seconds: dict[tuple[str, MeasuredAt], list[float]] = {}
    shares: dict[tuple[str, MeasuredAt], list[float]] = {}
    sums: dict[MeasuredAt, list[float]] = {}
    ratios: dict[MeasuredAt, list[float]] = {}
    mixer_counts = layer_counts(kind for kind in chosen if not kind.feeds)
    for place, rounds in by_round(sweep, names).items():
        complete_rounds = {
            number: totals
            for number, round_laps in rounds.items()
            if mechanisms
            and mechanisms <= round_laps.keys()
            and (totals := sum_of_layers(round_laps, layer_counts(chosen)))
        }
        if complete_rounds:
            sums[place] = [median(totals.values()) for totals in complete_rounds.values()]
        if complete_rounds and 0 < len(mixer_counts) < len(mechanisms):
            ratios[place] = [
                ratio_to_rest(rounds[n], mixer_counts, round_laps)
                for n, round_laps in complete_rounds.items()
            ]
        for number in complete_rounds or rounds:
            for kind in chosen:
                if (laps := rounds[number].get(kind.mechanism)) is None:
                    continue
                seconds.setdefault((kind.words, place), []).append(
                    kind.layers * median(laps.values())
                )
                if number in complete_rounds:
                    totals = complete_rounds[number]
                    parts = [kind.layers * laps[pair] / total for pair, total in totals.items()]
                    shares.setdefault((kind.words, place), []).append(median(parts))
    return with_exact_sums(
        Times(
            estimates(seconds),
            estimates(shares),
            estimates(sums),
            estimates(ratios),
        ),
        chosen,
    )


def ratio_to_rest(laps: Mapping[str, Laps], counts: Mapping[str, int], totals: Laps) -> float:
    """So many layers of some mechanisms over the rest of the totals, median over pairs of laps."""
    parts = sum_of_layers(laps, counts)
    return median(parts[pair] / (total - parts[pair]) for pair, total in totals.items())


def layer_counts(kinds: Iterable[LayerKind]) -> dict[str, int]:
    """How many layers each mechanism computes, over all kinds that it does."""
    counts: dict[str, int] = {}
    for kind in kinds:
        counts[kind.mechanism] = counts.get(kind.mechanism, 0) + kind.layers
    return counts


def with_exact_sums(estimates: Times, kinds: Sequence[LayerKind]) -> Times:
    """The same with sums that are the sums of their kinds, and shares that are of these sums.

    A median of sums is not quite the sum of medians, nor is a mean of logarithms: where noise is
    large, a column would not add up. Intervals keep their relative width, that of paired laps.
    """
    sums: dict[MeasuredAt, Estimate] = {}
    shares: dict[tuple[str, MeasuredAt], Estimate] = {}
    ratios: dict[MeasuredAt, Estimate] = {}
    feeding = {kind.words for kind in kinds if kind.feeds}
    for place, total_estimate in estimates.sums.items():
        parts = {key: own.point for key, own in estimates.seconds.items() if key[1] == place}
        total = math.fsum(parts.values())
        sums[place] = with_point(total_estimate, total)
        for key, part in parts.items():
            shares[key] = with_point(estimates.shares[key], part / total)
        if ratio := estimates.ratios.get(place):
            feeds = math.fsum(part for (words, _), part in parts.items() if words in feeding)
            ratios[place] = with_point(ratio, (total - feeds) / feeds)
    return Times(estimates.seconds, shares, sums, ratios)


def with_point(estimate: Estimate, point: float) -> Estimate:
    """The estimate with another point, and the relative width of its interval."""
    factor = point / estimate.point
    return replace(estimate, point=point, low=estimate.low * factor, high=estimate.high * factor)


def sum_of_layers(laps: Mapping[str, Laps], counts: Mapping[str, int]) -> Laps:
    """Seconds of so many layers of each mechanism, in the pairs of laps that all of them have."""
    shared = set.intersection(*({*laps[name]} for name in counts))
    return {pair: math.fsum(n * laps[name][pair] for name, n in counts.items()) for pair in shared}


def by_round(
    sweep: Sweep, names: Mapping[str, str]
) -> dict[MeasuredAt, dict[int, dict[str, Laps]]]:
    """Seconds of one layer in each pair of laps, by place, round and the name of the case."""
    planned = {one.case.key: one for one in sweep.plan}
    slope = sweep_slope(sweep.runs, {key: one.block for key, one in planned.items()})
    laps_by_place: dict[MeasuredAt, dict[int, dict[str, Laps]]] = {}
    for run in sweep.runs:
        is_timed = run.part is Part.TIME and run.outcome is Outcome.OK and run.case in names
        if is_timed and (pairs := by_pair(run.samples, slope)):
            w = planned[run.case].case.workload
            depth = planned[run.case].depth
            rounds = laps_by_place.setdefault(MeasuredAt(str(w.mode), w.seq_len, w.step), {})
            layer_laps = {pair: seconds / depth for pair, seconds in pairs.items()}
            rounds.setdefault(run.round, {})[names[run.case]] = layer_laps
    return laps_by_place


def estimates(rounds: Mapping[Key, Sequence[float]]) -> dict[Key, Estimate]:
    """The estimate of each positive number over its rounds; without an interval after one."""
    logs = [[math.log(value) for value in own] for own in rounds.values()]
    once = [Estimate(point=math.exp(math.fsum(own) / len(own))) for own in logs]
    return dict(zip(rounds, over_rounds(logs) or once, strict=True))
