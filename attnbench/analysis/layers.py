"""What the layers of a model cost, from a sweep that measured one layer of each kind.

In a round the kinds took turns, so drift falls on all of them alike. A round gives one sum
and one share of each kind, medians over its pairs of laps, as it gives one time of each.
Estimates and 95 % confidence intervals are over rounds, as those of all times.
"""

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from statistics import median
from typing import Any, NamedTuple, TypeVar

from attnbench.analysis.report import Analysis
from attnbench.analysis.summary import Row
from attnbench.records import Mode, Outcome, Part, Sweep
from attnbench.statistics.curves import series_names
from attnbench.statistics.estimate import Estimate, over_rounds
from attnbench.statistics.laps import Laps, by_pair, sweep_slope

DECODE = Mode("decode")
UNKNOWN = Estimate()
ENDS = ("point", "low", "high")

Key = TypeVar("Key", bound=Hashable)
Place = tuple[str, int]  # mode and length


class LayerKind(NamedTuple):
    """The layers of one kind, in words, and their number.

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
    """Seconds of all layers of each series and their share of the sum, and the sum itself.

    A sum is there where every series was timed in a round.
    """

    seconds: Mapping[tuple[str, Place], Estimate]
    shares: Mapping[tuple[str, Place], Estimate]
    sums: Mapping[Place, Estimate]


class ModelCosts:
    """The costs of all layers of each of the `kinds`.

    `series` are those that measured a layer of each kind, empty where none did; `places` the modes
    and lengths of the sweep, steps first, from short to long.
    """

    def __init__(self, analysis: Analysis, kinds: Sequence[LayerKind]) -> None:
        self.analysis, self.kinds = analysis, kinds
        plan, names = analysis.sweep.plan, series_names(analysis.sweep.plan)
        # in the order in which the mechanisms were asked for
        planned = {(one.case.mechanism, one.case.options): names[one.case.key] for one in plan}
        asked = dict.fromkeys(kind.mechanism for kind in kinds if kind.mechanism)
        series = dict(zip(asked, planned.values(), strict=True))
        self.series = [series.get(kind.mechanism, "") for kind in kinds]
        self.rows = {
            (row["series"], (str(row["mode"]), int(row["seq_len"]))): row
            for _, row in analysis.cases.iterrows()
        }
        places = dict.fromkeys(place for _, place in self.rows)
        self.places = sorted(places, key=lambda place: (place[0] != DECODE, place[1]))

    @property
    def steps(self) -> list[int]:
        """The contexts after which a step was planned."""
        return [n for mode, n in self.places if mode == DECODE]

    @property
    def several(self) -> bool:
        """Whether more than one kind was measured."""
        return len({*self.series} - {""}) > 1

    @cached_property
    def times(self) -> Times:
        """The times of the layers that can be measured, and their sum."""
        pairs = zip(self.series, self.kinds, strict=True)
        return times(self.analysis.sweep, {name: kind.layers for name, kind in pairs if name})

    def case(self, index: int, place: Place) -> Row | None:
        """The row of `summary` of one layer of a kind."""
        return self.rows.get((self.series[index], place))

    def flops(self, index: int, place: Place) -> float:
        """The FLOPs of one iteration of all layers of a kind; NaN where unknown."""
        case = self.case(index, place)
        return math.nan if case is None else float(case["flops"]) * self.kinds[index].layers

    @property
    def largest(self) -> int:
        """The kind of those measured whose layers keep most of each token."""
        kept = [kind.per_token / kind.layers for kind in self.kinds]
        return max(range(len(kept)), key=lambda i: (self.series[i] != "", kept[i]))

    def pays_from(self, index: int) -> Row | None:
        """From which context on a step of this kind costs less than one of the largest."""
        pairs, own = self.analysis.crossovers, (self.series[index], self.series[self.largest])
        found = pairs[(pairs["mode"] == DECODE) & (pairs["series"] == own[0])]
        found = found[found["other"] == own[1]]
        return None if found.empty else found.iloc[0]

    def records(self) -> Iterator[dict[str, Any]]:
        """Everything about each kind as data."""
        for index, kind in enumerate(self.kinds):
            crossover = self.pays_from(index)
            costs = [{**self.cost(index, place)} for place in self.places]
            pays = None if crossover is None else crossover.to_dict()
            yield {**kind._asdict(), "pays_from": pays, "costs": costs}

    def cost(self, index: int, place: Place) -> dict[str, Any]:
        """The numbers of all layers of a kind in one place."""
        key, of = (self.series[index], place), {"mode": place[0], "seq_len": place[1]}
        time, share = (
            ends(name, known.get(key, UNKNOWN))
            for name, known in (("time", self.times.seconds), ("share", self.times.shares))
        )
        return {**of, "flops": self.flops(index, place), **time, **share}

    def sums(self) -> Iterator[dict[str, Any]]:
        """The sum of the kinds that can be measured, in each place where all of them were."""
        for place in [place for place in self.places if place in self.times.sums]:
            own = ends("time", self.times.sums[place])
            yield {"mode": place[0], "seq_len": place[1], **own}


def ends(name: str, estimate: Estimate) -> dict[str, float]:
    """An estimate with its interval as data."""
    return {f"{name}_{end}": getattr(estimate, end) for end in ENDS}


def times(sweep: Sweep, counts: Mapping[str, int]) -> Times:
    """The times of a model with so many layers of each series."""
    seconds: dict[tuple[str, Place], list[float]] = {}
    shares: dict[tuple[str, Place], list[float]] = {}
    sums: dict[Place, list[float]] = {}
    for place, rounds in by_round(sweep).items():
        for found in rounds.values():
            own = {name: found[name] for name in counts if name in found}
            for name, laps in own.items():
                value = counts[name] * median(laps.values())
                seconds.setdefault((name, place), []).append(value)
            if len(own) < len(counts) or not (totals := summed(own, counts)):
                continue
            sums.setdefault(place, []).append(median(totals.values()))
            for name, laps in own.items():
                parts = [counts[name] * laps[pair] / total for pair, total in totals.items()]
                shares.setdefault((name, place), []).append(median(parts))
    return Times(estimated(seconds), estimated(shares), estimated(sums))


def summed(laps: Mapping[str, Laps], counts: Mapping[str, int]) -> Laps:
    """Seconds of so many layers of each series, in the pairs of laps that all of them have."""
    shared = set.intersection(*({*own} for own in laps.values()))
    return {pair: math.fsum(n * laps[name][pair] for name, n in counts.items()) for pair in shared}


def by_round(sweep: Sweep) -> dict[Place, dict[int, dict[str, Laps]]]:
    """Seconds of one layer in each pair of laps, by place, round and series."""
    names, planned = series_names(sweep.plan), {one.case.key: one for one in sweep.plan}
    slope = sweep_slope(sweep.runs, {key: one.block for key, one in planned.items()})
    found: dict[Place, dict[int, dict[str, Laps]]] = {}
    for run in sweep.runs:
        timed = run.part is Part.TIME and run.outcome is Outcome.OK and run.case in planned
        if timed and (pairs := by_pair(run.samples, slope)):
            w, depth = planned[run.case].case.workload, planned[run.case].depth
            rounds = found.setdefault((str(w.mode), w.seq_len), {})
            own = {pair: seconds / depth for pair, seconds in pairs.items()}
            rounds.setdefault(run.round, {})[names[run.case]] = own
    return found


def estimated(rounds: Mapping[Key, Sequence[float]]) -> dict[Key, Estimate]:
    """The estimate of each positive number over its rounds; without an interval after one."""
    logs = [[math.log(value) for value in own] for own in rounds.values()]
    once = [Estimate(point=math.exp(math.fsum(own) / len(own))) for own in logs]
    return dict(zip(rounds, over_rounds(logs) or once, strict=True))
