"""What a sweep has measured so far, and what that predicts for the cases to come."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from statistics import median

from attnbench.records import Block, Case, Outcome, Part, Planned, Prediction, Run
from attnbench.run import schedule
from attnbench.run.predict import Known, Peaks, Rates, Times
from attnbench.run.race import next_pair
from attnbench.statistics.curves import series_names
from attnbench.statistics.laps import Laps, by_pair, sweep_slope

LONGER = 4  # times the longest length examined for odd behaviour, from which another one is


@dataclass
class History:
    """The runs of a plan; every series is predicted from its own measurements."""

    plan: Sequence[Planned]
    walls: dict[str, list[float]] = field(default_factory=dict)  # wall time over time, by series
    ended: list[tuple[Case, Run]] = field(default_factory=list)  # out of memory or time
    timed: dict[tuple[str, int], Run] = field(default_factory=dict)  # by case and round
    memory_measured: set[str] = field(default_factory=set)  # cases whose memory was measured
    errors: dict[Case, float] = field(default_factory=dict)  # numerical ones, by slice
    compiled: dict[str, Known] = field(default_factory=dict)  # seconds before it runs, by series
    prefills: dict[str, Known] = field(default_factory=dict)  # seconds to the first token, likewise
    visits: dict[str, float] = field(default_factory=dict)  # seconds of a case's shortest visit
    failed: set[str] = field(default_factory=set)  # cases with a timed run that failed
    # the longest length at which a family was examined for odd behaviour, by round
    examined: dict[Case, dict[int, int]] = field(default_factory=dict)
    # seconds of a process besides its iterations: measured if possible, else assumed
    overhead_s: dict[Part, float] = field(default_factory=lambda: dict(schedule.OVERHEAD_S))
    overheads_s: dict[Part, list[float]] = field(default_factory=dict)  # all that were measured
    context_bytes: float = 0.0  # memory of the device that a process takes before any tensor
    rates: Rates | None = None  # measured peaks; None: as the plan assumed

    def __post_init__(self) -> None:
        self.names = series_names(self.plan)
        self.times, self.peaks = Times(self.names, self.rates), Peaks(self.names)

    def name(self, planned: Planned) -> str:
        """The series of a case."""
        return self.names[planned.case.key]

    def is_suspicious(self, planned: Planned, round_: int) -> bool:
        """Whether to look for odd behaviour in the code of others: once per curve and round, and
        again at lengths that are much longer.
        """
        examined = self.examined.get(schedule.family(planned.case), {})
        longest = max(examined.values(), default=0)
        is_longer = planned.case.workload.seq_len >= LONGER * longest
        return not planned.own and (round_ not in examined or is_longer)

    def learn(self, planned: Planned, run: Run) -> None:
        """Take a run into account."""
        if run.part is Part.MEMORY:
            self.memory_measured.add(run.case)
            if "error" in run.values:
                self.errors[planned.case.slice] = run.values["error"]
            if run.outcome is Outcome.OK:
                ran_s = schedule.memory_s(self.wall_s(planned), 0.0)
                self.learn_overhead(run, ran_s + self.prepare_s(planned))
        elif run.outcome is not Outcome.OK:
            self.failed.add(run.case)
            if run.outcome in schedule.ENDS:
                self.ended.append((planned.case, run))
        elif run.samples:
            again = (run.case, run.round) in self.timed  # an anchor, in another race
            self.timed[run.case, run.round] = run
            if "examined" in run.notes:
                examined = self.examined.setdefault(schedule.family(planned.case), {})
                longest = max(examined.get(run.round, 0), planned.case.workload.seq_len)
                examined[run.round] = longest
            seconds = median(sample.seconds for sample in run.samples)
            walls = [s.wall_s / s.iterations / s.seconds for s in run.samples]
            self.walls.setdefault(self.name(planned), []).append(median(walls))
            self.times.learn(planned, seconds)
            if planned.compiles:
                took_s = sum(run.values.get(key, 0.0) for key in ("setup_s", "compile_s"))
                self.compiled.setdefault(self.name(planned), []).append((planned, took_s))
            if ttft_s := run.values.get("ttft_s"):
                self.prefills.setdefault(self.name(planned), []).append((planned, ttft_s))
            rehearsed = seconds < schedule.REHEARSED_S
            ran_s = sum(s.wall_s + rehearsed * s.wall_s / s.iterations for s in run.samples)
            ran_s += sum(run.values.get(key, 0.0) for key in ("warmup_s", "retaken_s"))
            if not again:
                self.visits[run.case] = min(self.visits.get(run.case, math.inf), run.elapsed_s)
                self.learn_overhead(run, ran_s + self.prepare_s(planned))
        self.context_bytes = run.values.get("context_bytes", self.context_bytes)
        if peak := run.values.get("allocated_peak_bytes"):
            self.peaks.learn(planned, peak)

    def learn_overhead(self, run: Run, known_s: float) -> None:
        """Take into account what a process took in addition to the `known_s` of its iterations."""
        known = self.overheads_s.setdefault(run.part, [])
        known.append(max(0.0, run.elapsed_s - known_s))
        self.overhead_s[run.part] = median(known)

    def prediction(self, planned: Planned) -> Prediction | None:
        """What is predicted of a case; None if that is unknown, and once it was timed."""
        unknown = self.times.unknown(planned) or self.peaks.unknown(planned)
        if unknown or planned.case.key in self.times.measured:
            return None
        return Prediction(self.times.of(planned), self.peaks.of(planned))

    def iteration_s(self, planned: Planned) -> float:
        """Seconds of one iteration: measured if possible, else predicted."""
        return self.times.of(planned)

    def wall_s(self, planned: Planned) -> float:
        """Seconds that an iteration occupies a process: more where launches take longer."""
        walls = self.walls.get(self.name(planned)) or list(chain(*self.walls.values()))
        return self.iteration_s(planned) * (median(walls) if walls else 1.0)

    def prepare_s(self, planned: Planned) -> float:
        """Seconds in a process before the first iteration: of compiling, or of a prefill."""
        return self.prefill_s(planned) + self.compile_s(planned)

    def prefill_s(self, planned: Planned) -> float:
        """Seconds to the first token: measured, else from the FLOPs of the longest measured."""
        known = self.prefills.get(self.name(planned), [])
        if not planned.prefill_flops or not known:
            return planned.prefill_s
        nearest, took_s = max(known, key=lambda pair: pair[0].case.workload.seq_len)
        return took_s * planned.prefill_flops / nearest.prefill_flops

    def compile_s(self, planned: Planned) -> float:
        """Seconds of compiling a case in a process, with the iteration that triggers it."""
        if not planned.compiles:
            return 0.0
        known = self.compiled.get(self.name(planned), [])
        own = [seconds for other, seconds in known if other is planned]
        longest_s = max((seconds for _, seconds in known), default=schedule.COMPILE_S)
        return (own[-1] if own else longest_s) + self.iteration_s(planned)

    def needed_bytes(self, planned: Planned) -> float:
        """Bytes to keep free for a process that runs the case."""
        return schedule.MARGIN * (self.context_bytes + self.peaks.of(planned))

    def repeatable(self) -> list[Planned]:
        """Cases that were timed and that no round failed to time."""
        good = {key for key, _ in self.timed} - self.failed
        return [planned for planned in self.plan if planned.case.key in good]

    @property
    def laps(self) -> dict[tuple[str, Block], dict[int, Laps]]:
        """The pairs of laps of each round, by series and block, of cases that can be repeated."""
        laps: dict[tuple[str, Block], dict[int, Laps]] = {}
        cases = {planned.case.key: planned for planned in self.repeatable()}
        blocks = {key: planned.block for key, planned in cases.items()}
        slope = sweep_slope(self.timed.values(), blocks)
        for (key, round_), run in self.timed.items():
            if planned := cases.get(key):
                own = laps.setdefault((self.name(planned), planned.block), {})
                own[round_] = by_pair(run.samples, slope)
        return laps

    @property
    def rounds(self) -> Counter[str]:
        """In how many rounds each case was timed, by its key."""
        return Counter(key for key, _ in self.timed)

    def runs_of(self, block: Block) -> dict[str, tuple[Run, ...]]:
        """The runs of each series that was timed in a block, round by round."""
        found: dict[str, tuple[Run, ...]] = {}
        names = {p.case.key: self.name(p) for p in self.plan if p.block == block}
        for (key, _), run in sorted(self.timed.items()):
            if key in names:
                found[names[key]] = (*found.get(names[key], ()), run)
        return found

    def next_lap(self, block: Block, round_: int) -> int:
        """The next lap of a block in this round."""
        runs = [self.timed.get((p.case.key, round_)) for p in self.plan if p.block == block]
        return next_pair(s.lap for run in runs if run for s in run.samples if s.lap is not None)


def blocks(plan: Sequence[Planned]) -> dict[Block, list[Planned]]:
    """The cases of each block."""
    blocks: dict[Block, list[Planned]] = {}
    for planned in plan:
        blocks.setdefault(planned.block, []).append(planned)
    return blocks
