"""What cases take, in seconds and bytes: guessed at first, then learnt from runs.

The first guess uses FLOPs, bytes and the machine's peak rates; every measured case improves the
next prediction. One rule predicts all of it: `Costs.predicted`.
"""

import math
from collections.abc import Hashable, Sequence
from enum import StrEnum
from statistics import linear_regression, median
from types import MappingProxyType
from typing import TypeAlias

from attnbench.analysis.statistics.curves import series_of
from attnbench.records import (
    PASSES,
    REHEARSED_S,
    Environment,
    Outcome,
    Part,
    Planned,
    Run,
    Series,
    modes,
)

Rates: TypeAlias = tuple[float, float]  # FLOP/s of a large product, bytes/s of a large copy
Group: TypeAlias = tuple[Hashable, ...]  # what is predicted, of cases that predict one another
Known: TypeAlias = Sequence[tuple[Planned, float]]  # cases with a measured cost, short to long

CALLS_S = 1e-4  # of some ten calls of torch, whatever they compute
# How many times longer than at the peak rates it takes to compute large products, to compute those
# of the core, and to move each number once. Fitted to the 368 cases of six sweeps on two cores: in
# all but one of these sweeps the median error is a factor of at most 1.65; that one has slow
# recurrences.
PRODUCTS = 1.35
CORE = 2.8
MOVED = 5.5
# time to fill a state over that to copy it: fresh pages cost three copies (1.2 µs for 4 KiB, at
# 10 GB/s), writing one, and as much again is margin, since it decides only what fits the budget
FILLING = 8.0
ASSUMED: Rates = (64e9, 1e10)  # of a core
SLOPE_LENGTHS = 3  # measured lengths from which the costs of an undeclared module are predicted
COMPILE_S = 20.0  # loading and running torch.compile
MEMORY_ITERATIONS = 1.3  # cost of an iteration under the profiler and of the small ones
MARGIN = 1.1  # memory kept free, relative to the prediction


class CostKind(StrEnum):
    """What is predicted of a case."""

    SECONDS = "of an iteration"
    STRETCH = "wall time over those seconds"
    BYTES = "at the peak"
    TIMING = "seconds of a visit besides its iterations"
    WEIGHING = "seconds of measuring its memory besides the iterations"
    EXAMINING = "seconds of looking for odd behaviour, in the visits that do"


# before any was measured: building the module and its inputs, and a share of starting the process
OVERHEAD_S = MappingProxyType({CostKind.TIMING: 0.15, CostKind.WEIGHING: 0.5})


class Costs:
    """Seconds and bytes of the cases of a plan; every series is predicted from its own runs.

    plan:          the cases that are predicted, or predict others
    rates:         peaks of the machine; None: assumed
    context_bytes: what a process takes of the device before any tensor
    start_s:       seconds before a process can use the device; of all cases that it times only the
                   first one has to wait
    """

    def __init__(
        self,
        plan: Sequence[Planned],
        rates: Rates | None = None,
        context_bytes: float = 0.0,
        start_s: float = 0.0,
    ) -> None:
        self.series = series_of(plan)  # by the key of the case
        self.rates = rates or ASSUMED
        self.context_bytes = context_bytes
        self.contexts: dict[Series, float] = {}  # measured, of each series
        share_s = start_s * len({*self.series.values()}) / max(1, len(self.series))
        self.start_s = {CostKind.TIMING: share_s, CostKind.WEIGHING: start_s}
        self.measured: dict[Group, dict[str, tuple[Planned, float]]] = {}  # by group and case

    def learn(self, planned: Planned, run: Run) -> None:
        """Take a run into account; of all that were made of a case, the shortest.

        Of a run that has no laps, or took no time to measure memory, as in a dry run, nothing is
        learnt.
        """
        if "context_bytes" in run.values:
            self.contexts[self.series[planned.case.key]] = run.values["context_bytes"]
        if peak := run.values.get("allocated_peak_bytes"):
            self.take(CostKind.BYTES, planned, peak)
        measured = run.samples if run.part is Part.TIME else run.elapsed_s
        if run.outcome is not Outcome.OK or not measured:
            return
        if run.part is Part.TIME:
            besides = CostKind.TIMING
            examined_s = run.values.get("examination_s", 0.0)
            if examined_s:
                self.take(CostKind.EXAMINING, planned, examined_s)
            ran_s = self.learn_laps(planned, run) + examined_s
        else:
            besides = CostKind.WEIGHING
            ran_s = self.weighing_s(planned)
        earlier = self.measured.get(self.groups(planned, besides)[0], {})
        least_s = earlier[run.case][1] if run.case in earlier else math.inf
        self.take(besides, planned, min(least_s, max(0.0, run.elapsed_s - ran_s)))

    def learn_laps(self, planned: Planned, run: Run) -> float:
        """Take into account how long iterations took; the seconds of all that ran."""
        seconds = median(sample.seconds for sample in run.samples)
        walls = [sample.wall_s / sample.iterations for sample in run.samples]
        self.take(CostKind.SECONDS, planned, seconds)
        self.take(CostKind.STRETCH, planned, median(walls) / seconds)
        rehearsals_s = sum(walls) if seconds < REHEARSED_S else 0.0
        laps_s = sum(sample.wall_s for sample in run.samples)
        return laps_s + rehearsals_s + run.values.get("warmup_s", 0.0)

    def take(self, what: CostKind, planned: Planned, cost: float) -> None:
        """Take a measured cost into account, in place of an earlier one of the case."""
        for group in self.groups(planned, what):
            self.measured.setdefault(group, {})[planned.case.key] = planned, cost

    def groups(self, planned: Planned, what: CostKind) -> tuple[Group, ...]:
        """Groups of cases whose costs predict the cost of this one, nearest first.

        No step is predicted from passes, nor passes from steps, and bytes by the same form alone.
        """
        series = self.series[planned.case.key]
        mode = planned.case.workload.mode
        if what is CostKind.BYTES:
            return ((what, series, mode, planned.case.form),)
        kind = "passes" if mode in PASSES else "steps"
        return (what, series, mode, ""), (what, planned.case.mechanism, kind), (what, kind)

    def curve(self, planned: Planned, what: CostKind) -> Known:
        """What was measured of the series in the mode, from short to long."""
        by_case = self.measured.get(self.groups(planned, what)[0], {})
        return sorted(by_case.values(), key=lambda pair: seq_len(pair[0]))

    def is_unknown(self, planned: Planned, what: CostKind) -> bool:
        """Whether a prediction would only be assumed; see `by_slope`."""
        return not planned.declared and len(self.curve(planned, what)) < SLOPE_LENGTHS

    def predicted(self, what: CostKind, planned: Planned) -> float:
        """The cost of the case where it was measured; else its guess times an error of guesses.

        That is the median of measured over guessed at the nearest length, in the nearest of its
        groups of which anything was measured. A slow spell of the machine is not taken for what
        each case of a series costs besides its iterations: before `SLOPE_LENGTHS` of them were
        measured, that is the least of what its groups say.
        """
        known = [g for group in self.groups(planned, what) if (g := self.measured.get(group))]
        if not known:
            return self.guess(what, planned)
        near = known[0]
        if planned.case.key in near:
            return near[planned.case.key][1]
        grows = what in (CostKind.SECONDS, CostKind.BYTES)
        if grows and not (planned.declared or self.is_unknown(planned, what)):
            return by_slope(planned, self.curve(planned, what))
        few = what in OVERHEAD_S and not planned.compiles and len(near) < SLOPE_LENGTHS
        groups = known if few else known[:1]
        error = min(self.error(what, planned, [*group.values()]) for group in groups)
        return self.guess(what, planned) * error

    def error(self, what: CostKind, planned: Planned, known: Known) -> float:
        """Measured over guessed costs of the known cases at the nearest length: their median."""
        errors: dict[float, list[float]] = {}  # by distance
        for other, cost in known:
            distance = abs(math.log(seq_len(other) / seq_len(planned)))
            errors.setdefault(distance, []).append(cost / self.guess(what, other))
        return median(errors[min(errors)])

    def guess(self, what: CostKind, planned: Planned) -> float:
        """The cost before anything is measured."""
        match what:
            case CostKind.SECONDS:
                return self.first_guess(planned)
            case CostKind.STRETCH:
                return 1.0
            case CostKind.BYTES:
                return planned.predicted_bytes
            case CostKind.EXAMINING:
                return 0.0
            case CostKind.TIMING | CostKind.WEIGHING:
                return OVERHEAD_S[what] + self.start_s[what] + self.prepare_s(planned)

    def first_guess(self, planned: Planned) -> float:
        """Seconds of one iteration before anything is measured."""
        products_s = PRODUCTS * (planned.flops - planned.core_flops) / self.rates[0]
        core_s = CORE * planned.core_flops / self.rates[0]
        forward_s = products_s + core_s + MOVED * planned.moved_bytes / self.rates[1] + CALLS_S
        return modes.find(planned.case.workload.mode).forward_passes * forward_s

    def prepare_s(self, planned: Planned) -> float:
        """The guess for what precedes the first iteration: compiling, a prefill, or filling."""
        if planned.compiles:
            return COMPILE_S + self.iteration_s(planned)
        filling_s = FILLING * planned.moved_bytes / self.rates[1] if planned.filled else 0.0
        return CORE * planned.prefill_flops / self.rates[0] + filling_s

    def iteration_s(self, planned: Planned) -> float:
        """Seconds of one iteration."""
        return self.predicted(CostKind.SECONDS, planned)

    def wall_s(self, planned: Planned) -> float:
        """Seconds that an iteration occupies a process: more where others share the core."""
        return self.iteration_s(planned) * self.predicted(CostKind.STRETCH, planned)

    def needed_bytes(self, planned: Planned) -> float:
        """Bytes to keep free for a process that runs the case."""
        context_bytes = self.context_of(self.series[planned.case.key])
        return MARGIN * (context_bytes + self.predicted(CostKind.BYTES, planned))

    def context_of(self, series: Series) -> float:
        """Bytes that a process of a series takes of the device beside its tensors.

        What a library that a mechanism calls takes for itself is no other's.
        """
        usual = min(self.contexts.values(), default=self.context_bytes)
        return self.contexts.get(series, usual)

    def weighing_s(self, planned: Planned) -> float:
        """Seconds of the iterations that measure the memory of a case."""
        return MEMORY_ITERATIONS * self.wall_s(planned)

    def examination_s(self, planned: Planned) -> float:
        """Seconds of looking for odd behaviour in a case; 0 before that was done in its series.

        It takes calls and iterations, so that a longer case takes at most as many times as long as
        its iterations do.
        """
        curve = self.curve(planned, CostKind.EXAMINING)
        if not curve:
            return 0.0
        other, cost_s = min(curve, key=lambda pair: abs(seq_len(pair[0]) - seq_len(planned)))
        return cost_s * max(1.0, self.iteration_s(planned) / self.iteration_s(other))

    def memory_s(self, planned: Planned) -> float:
        """Seconds of measuring the memory of a case."""
        return self.predicted(CostKind.WEIGHING, planned) + self.weighing_s(planned)


def peak_rates(here: Environment) -> Rates | None:
    """The measured ones of a machine; None where they were not measured."""
    if not here.matmul_flops or not here.copy_bytes:
        return None
    return here.matmul_flops, here.copy_bytes


def by_slope(planned: Planned, curve: Known) -> float:
    """The cost of a case whose mechanism declares none, from the last measured lengths.

    A sequence is taken to cost a power of N, which is fitted to them. From fewer lengths than
    `SLOPE_LENGTHS` nothing is known: their costs in proportion to tokens only put cases in order.
    """
    last = curve[-SLOPE_LENGTHS:]
    lengths = [math.log(seq_len(other)) for other, _ in last]
    costs = [math.log(cost / other.case.workload.batch) for other, cost in last]
    slope, start = linear_regression(lengths, costs)
    return planned.case.workload.batch * math.exp(start + slope * math.log(seq_len(planned)))


def seq_len(planned: Planned) -> int:
    """The length of a case."""
    return planned.case.workload.seq_len
