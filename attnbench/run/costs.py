"""What visits to cases take, in seconds and bytes: guessed at first, then learnt from runs.

The first guess uses FLOPs, bytes and the machine's peak rates; every measured case improves the
next prediction.
"""

import math
from collections.abc import Sequence
from itertools import chain
from statistics import linear_regression, median
from types import MappingProxyType
from typing import TypeAlias

from attnbench import modes
from attnbench.devices.finding import find
from attnbench.records import (
    PASSES,
    Clock,
    Environment,
    Outcome,
    Part,
    Planned,
    Request,
    Run,
    Settings,
)
from attnbench.run.race import REHEARSED_S, turns
from attnbench.statistics.curves import series_names

Rates: TypeAlias = tuple[float, float]  # FLOP/s of a large product, bytes/s of a large copy
Group: TypeAlias = tuple[str, ...]  # of cases that predict one another
Known: TypeAlias = Sequence[tuple[Planned, float]]  # cases with a measured cost, short to long

CALLS_S = 1e-4  # of some ten calls of torch, whatever they compute
# How many times longer than at the peak rates it takes to compute large products, to compute those
# of the core, and to move each number once. Fitted to the 368 cases of six sweeps on two cores: in
# all but one of these sweeps the median error is a factor of at most 1.65; that one has slow
# recurrences.
PRODUCTS, CORE, MOVED = 1.35, 2.8, 5.5
# time to fill a state over that to copy it: fresh pages cost three copies (1.2 µs for 4 KiB, at
# 10 GB/s), writing one, and as much again is margin, since it decides only what fits the budget
FILLING = 8.0
ASSUMED: Rates = (64e9, 1e10)  # of a core
SLOPE_LENGTHS = 3  # measured lengths from which the costs of an undeclared module are predicted
# seconds of a process without its iterations, before any was measured: building the module and
# its inputs, and a share of starting the process
OVERHEAD_S = MappingProxyType({Part.TIME: 0.15, Part.MEMORY: 0.5})
COMPILE_S = 20.0  # loading and running torch.compile, before a series has been compiled
MEMORY_ITERATIONS = 1.3  # cost of an iteration under the profiler and of the small ones
ENERGY_S = 4.0  # further seconds of a visit that also measures energy
MARGIN = 1.1  # memory kept free, relative to the prediction


class Costs:
    """Seconds and bytes of the cases of a plan; every series is predicted from its own runs.

    The seconds of an iteration are predicted from the nearest cases that were timed: other lengths
    of the series in the mode, the mechanism's other series and modes, and then all mechanisms. Of
    them the nearest lengths count: the first guess is multiplied by the median ratio of their
    measured times to their first guesses. Peak bytes are predicted from the same form at the
    nearest measured length. `names` gives the series of each case, `rates` the peaks of the
    machine. A process takes `context_bytes` of the device before any tensor, and `start_s` before
    it can use it; of all that it times only the first case has to wait.
    """

    def __init__(
        self,
        plan: Sequence[Planned],
        rates: Rates | None = None,
        context_bytes: float = 0.0,
        start_s: float = 0.0,
    ) -> None:
        self.names, self.rates = series_names(plan), rates or ASSUMED
        self.context_bytes, self.start_s = context_bytes, start_s
        # of each case
        self.share_s = start_s * len({*self.names.values()}) / max(1, len(self.names))
        self.times: dict[str, float] = {}  # measured, of one iteration, by case
        self.known: dict[Group, dict[str, tuple[Planned, float]]] = {}  # by group and case
        self.walls: dict[str, list[float]] = {}  # wall time over time, by series
        # seconds before the first iteration of the longest case, by series
        self.prepared: dict[str, tuple[Planned, float]] = {}
        self.visits: dict[str, float] = {}  # seconds of a case's shortest visit
        self.overheads: dict[Part, list[float]] = {}  # of processes, besides their iterations
        self.foreseen: dict[str, float] = {}  # predicted seconds of visits since the last run

    def learn(self, planned: Planned, run: Run, again: bool = False) -> None:
        """Take a run into account, or `again` one to which a further race has added laps."""
        self.foreseen.clear()
        self.context_bytes = run.values.get("context_bytes", self.context_bytes)
        if peak := run.values.get("allocated_peak_bytes"):
            self.learn_cost(planned, Part.MEMORY, peak)
        if run.outcome is not Outcome.OK or (run.part is Part.TIME and not run.samples):
            return
        ran_s = self.learn_laps(planned, run) if run.samples else self.weighing_s(planned)
        if again:
            return
        rest_s = run.elapsed_s - ran_s - self.prepare_s(planned)
        self.overheads.setdefault(run.part, []).append(max(0.0, rest_s))
        if run.samples:
            self.visits[run.case] = min(self.visits.get(run.case, math.inf), run.elapsed_s)

    def learn_laps(self, planned: Planned, run: Run) -> float:
        """Take into account how long iterations took; the seconds of all that ran."""
        series = self.names[run.case]
        seconds = median(sample.seconds for sample in run.samples)
        walls = [sample.wall_s / sample.iterations for sample in run.samples]
        self.walls.setdefault(series, []).append(median(walls) / seconds)
        self.learn_time(planned, seconds)
        longest, _ = self.prepared.get(series, (planned, 0.0))
        took_s = run.values.get("setup_s", 0.0) + run.values.get("compile_s", 0.0)
        if took_s and seq_len(planned) >= seq_len(longest):
            self.prepared[series] = planned, took_s
        rehearsals_s = sum(walls) if seconds < REHEARSED_S else 0.0
        laps_s = sum(sample.wall_s for sample in run.samples)
        return laps_s + rehearsals_s + run.values.get("warmup_s", 0.0)

    def learn_time(self, planned: Planned, seconds: float) -> None:
        """Take a measured time of an iteration into account, in place of an earlier one."""
        self.foreseen.clear()
        self.times[planned.case.key] = seconds
        self.learn_cost(planned, Part.TIME, seconds)

    def learn_cost(self, planned: Planned, part: Part, cost: float) -> None:
        """Take a measured cost into account, in place of an earlier one of the case."""
        for group in self.groups(planned, part):
            self.known.setdefault(group, {})[planned.case.key] = planned, cost

    def overhead_s(self, part: Part) -> float:
        """Seconds of a process besides its iterations: measured if possible, else assumed."""
        known = self.overheads.get(part)
        if part is Part.TIME:  # most of what is known are visits to later cases
            return self.share_s + median(known or [OVERHEAD_S[part]])
        return median(known or [self.start_s + OVERHEAD_S[part]])

    def groups(self, planned: Planned, part: Part) -> tuple[Group, ...]:
        """Groups of cases whose times, or peaks, predict those of this one, nearest first.

        No step is predicted from passes, nor passes from steps.
        """
        series, mode = self.names[planned.case.key], planned.case.workload.mode
        if part is Part.MEMORY:
            return (("bytes", series, mode, planned.case.form),)
        kind = "passes" if mode in PASSES else "steps"
        return ("series", series, mode), ("mechanism", planned.case.mechanism, kind), ("all", kind)

    def curve(self, planned: Planned, part: Part) -> Known:
        """What was measured of the series in the mode, from short to long."""
        known = self.known.get(self.groups(planned, part)[0], {})
        return sorted(known.values(), key=lambda pair: seq_len(pair[0]))

    def is_unknown(self, planned: Planned, part: Part) -> bool:
        """Whether a prediction would only be assumed; see `by_slope`."""
        return not planned.declared and len(self.curve(planned, part)) < SLOPE_LENGTHS

    def iteration_s(self, planned: Planned) -> float:
        """Seconds of one iteration: the last measured time of the case, else its prediction."""
        if planned.case.key in self.times:
            return self.times[planned.case.key]
        if not (planned.declared or self.is_unknown(planned, Part.TIME)):
            return by_slope(planned, self.curve(planned, Part.TIME))
        near = (self.known[g] for g in self.groups(planned, Part.TIME) if g in self.known)
        errors: dict[float, list[float]] = {}  # by distance
        for other, seconds in next(near, {}).values():
            distance = abs(math.log(seq_len(other) / seq_len(planned)))
            errors.setdefault(distance, []).append(seconds / self.first_guess(other))
        return self.first_guess(planned) * (median(errors[min(errors)]) if errors else 1.0)

    def first_guess(self, planned: Planned) -> float:
        """Seconds of one iteration before anything is measured."""
        products_s = PRODUCTS * (planned.flops - planned.core_flops) / self.rates[0]
        core_s = CORE * planned.core_flops / self.rates[0]
        forward_s = products_s + core_s + MOVED * planned.moved_bytes / self.rates[1] + CALLS_S
        return modes.find(planned.case.workload.mode).forward_passes * forward_s

    def peak_bytes(self, planned: Planned) -> float:
        """Bytes at the peak: the plan's, corrected by its error at the nearest measured length."""
        curve, length = self.curve(planned, Part.MEMORY), seq_len(planned)
        if not curve:
            return planned.predicted_bytes
        if not (planned.declared or self.is_unknown(planned, Part.MEMORY)):
            return by_slope(planned, curve)
        known, peak = min(curve, key=lambda pair: abs(math.log(seq_len(pair[0]) / length)))
        return planned.predicted_bytes * peak / known.predicted_bytes

    def needed_bytes(self, planned: Planned) -> float:
        """Bytes to keep free for a process that runs the case."""
        return MARGIN * (self.context_bytes + self.peak_bytes(planned))

    def wall_s(self, planned: Planned) -> float:
        """Seconds that an iteration occupies a process: more where launches take longer."""
        walls = self.walls.get(self.names[planned.case.key]) or list(chain(*self.walls.values()))
        return self.iteration_s(planned) * (median(walls) if walls else 1.0)

    def prepare_s(self, planned: Planned) -> float:
        """Seconds in a process before the first iteration: compiling, a prefill, or filling."""
        known, took_s = self.prepared.get(self.names[planned.case.key], (None, COMPILE_S))
        if planned.compiles:
            return took_s + self.iteration_s(planned)
        if known and known.prefill_flops and planned.prefill_flops:
            return took_s * planned.prefill_flops / known.prefill_flops
        filling_s = FILLING * planned.moved_bytes / self.rates[1] if planned.filled else 0.0
        return CORE * planned.prefill_flops / self.rates[0] + filling_s

    def weighing_s(self, planned: Planned) -> float:
        """Predicted seconds of the iterations that measure the memory of a case."""
        return MEMORY_ITERATIONS * self.wall_s(planned)

    def memory_s(self, planned: Planned) -> float:
        """Predicted seconds of measuring the memory of a case."""
        before_s = self.overhead_s(Part.MEMORY) + self.prepare_s(planned)
        return before_s + self.weighing_s(planned)

    def visit_s(self, planned: Planned, settings: Settings, wall_s: float = 0.0) -> float:
        """Predicted seconds of one visit to a case; `wall_s` of an iteration if measured."""
        key = planned.case.key
        if key in self.foreseen and not wall_s:
            return self.foreseen[key]
        each_s = took_s = wall_s or self.wall_s(planned)
        if settings.clock is Clock.CPU and not wall_s:  # as many laps as CPU time asks for
            each_s = self.iteration_s(planned)
        warm_ups = 1 + min(max(0.0, settings.warmup_s / max(each_s, 1e-9) - 1), 10)
        iterations_s = took_s * (warm_ups + turns(each_s, settings).total)
        before_s = self.overhead_s(Part.TIME) + self.prepare_s(planned)
        predicted_s = before_s + ENERGY_S * settings.energy + iterations_s
        # first pages of gigabytes may take far longer than the iterations
        visit_s = max(predicted_s, self.visits.get(key, 0.0))
        if not wall_s:
            self.foreseen[key] = visit_s
        return visit_s


def peak_rates(here: Environment) -> Rates | None:
    """The measured ones of a machine; None where they were not measured."""
    if not here.matmul_flops or not here.copy_bytes:
        return None
    return here.matmul_flops, here.copy_bytes


def assumed_rates(request: Request) -> Rates:
    """Those of the kind of device, before any machine was measured."""
    device = find(request.device)
    return device.flops_per_s(request.settings.threads), device.bytes_per_s


def by_slope(planned: Planned, curve: Known) -> float:
    """The cost of a case whose mechanism declares none, from the last measured lengths.

    A sequence is taken to cost a power of N, which is fitted to them. From fewer lengths than
    `SLOPE_LENGTHS` nothing is known: their costs in proportion to tokens only put cases in order.
    """
    last = curve[-SLOPE_LENGTHS:]
    lengths = [math.log(seq_len(known)) for known, _ in last]
    costs = [math.log(cost / known.case.workload.batch) for known, cost in last]
    slope, start = linear_regression(lengths, costs)
    return planned.case.workload.batch * math.exp(start + slope * math.log(seq_len(planned)))


def seq_len(planned: Planned) -> int:
    """The length of a case."""
    return planned.case.workload.seq_len
