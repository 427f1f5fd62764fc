"""What a sweep has done and has still to do, within its budget and the memory of the machine."""

import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from attnbench import units
from attnbench.devices.finding import find
from attnbench.records import (
    Block,
    Case,
    Cause,
    Clock,
    Outcome,
    Part,
    Planned,
    Request,
    Run,
    Sample,
    Settings,
    Workload,
)
from attnbench.records.notes import Note
from attnbench.records.outcomes import OUTCOMES
from attnbench.run.costs import MARGIN, Cost, Costs, Rates, assumed_rates
from attnbench.run.race import next_pair
from attnbench.statistics.laps import Laps, by_pair, sweep_slope

OVERTIME = 5.0  # a visit may take this many times its prediction, and at least
AT_LEAST_S = 60.0
COMPILING_S = 300.0  # further seconds for compiling, which depends on more than FLOPs
# Samples and warm-up of the first round take at most these shares of a case's even share of the
# budget, so that long cases are reached
FIRST_SAMPLE, FIRST_WARMUP = 1 / 8, 1 / 32
KEPT = 0.2  # share of memory that the processes of a race may keep for the next one
FAR = 4  # times the longest length examined for odd behaviour, from which another one is
SHORT = 1 / 8  # share of a run's samples that an iteration to be examined again may take
# The fastest of so many laps of the first round may take so many times as long as the slowest one
# of a later round: caches, clocks and other programs change it less
LEAST_LAPS, LESS = 2, 3.0


@dataclass(kw_only=True)
class Agenda:
    """The plan of a sweep or of a part of it, its runs, and what is left to do in this round.

    `earlier` are the runs in the journal that need not be repeated. `memory_bytes` is what a case
    may use.
    """

    request: Request
    plan: Sequence[Planned]
    memory_bytes: float
    earlier: Iterable[Run] = ()
    clock: Callable[[], float] = time.monotonic
    begun: float | None = None  # when the budget began; None: now
    rates: Rates | None = None  # measured peaks of the machine
    round: int = 0
    over_budget: bool = False  # whether the budget left something out

    def __post_init__(self) -> None:
        self.begun_s = self.clock() if self.begun is None else self.begun
        self.blocks = blocks(self.plan)
        self.curves: dict[Case, list[Planned]] = {}
        for planned in self.plan:
            self.curves.setdefault(curve(planned.case), []).append(planned)
        self.device = find(self.request.device)
        self.first = settings = self.request.settings
        if self.request.budget_s is not None and self.plan:
            share_s = self.request.budget_s / len(self.plan)
            samples_s = min(settings.sample_s, FIRST_SAMPLE * share_s)
            warmup_s = min(settings.warmup_s, FIRST_WARMUP * share_s)
            self.first = replace(settings, sample_s=samples_s, warmup_s=warmup_s)
        rates = self.rates or assumed_rates(self.request)
        self.costs = Costs(self.plan, rates, self.device.context_bytes, self.device.start_s)
        cases = {planned.case.key: planned for planned in self.plan}
        # of each case, by round: what was measured of its time; and whether its memory was
        self.runs: dict[str, dict[int, Run]] = {key: {} for key in cases}
        self.weighed = set[str]()
        for run in self.earlier:
            if run.case in cases:
                self.learn(cases[run.case], run)
        # for their first visit, by the case's key
        unfinished = (p for p in self.plan if self.lacks_memory(p) or not self.is_done(p))
        self.waiting = {p.case.key: p for p in unfinished if not p.refusal}

    @property
    def settings(self) -> Settings:
        """The settings of this round."""
        return self.request.settings if self.round else self.first

    def series(self, planned: Planned) -> str:
        """The series of a case."""
        return self.costs.names[planned.case.key]

    def learn(self, planned: Planned, run: Run) -> Run:
        """Take a run into account; returns it with the laps of earlier races of its round."""
        self.costs.learn(planned, run)
        if run.part is Part.MEMORY:
            self.weighed.add(run.case)
            return run
        if before := self.timed(planned).get(run.round):
            run = together(before, run)
        run = self.with_sign(planned, run)
        self.runs[run.case][run.round] = run
        return run

    def left_s(self) -> float:
        """Seconds left of the budget; infinite without one."""
        if self.request.budget_s is None:
            return math.inf
        return self.request.budget_s - (self.clock() - self.begun_s)

    def fitting(self, cases: Iterable[Planned], reserve_s: float) -> list[Planned]:
        """The cheapest of these cases whose first visits leave `reserve_s` of the budget."""
        found, left_s = [], self.left_s() - reserve_s
        costs = [(self.cost_s(planned), planned) for planned in cases]
        for cost_s, planned in sorted(costs, key=lambda pair: pair[0]):
            needed_s = cost_s + (0.0 if self.is_done(planned) else self.link_s(planned.block))
            if needed_s <= left_s and self.limit(planned) is None:
                found.append(planned)
                left_s -= needed_s
        return found

    def left_out(self, planned: Planned) -> Run:
        """What is stored of a case that cannot run, or still waits at the end: why."""
        left_out = Run(case=planned.case.key, part=Part.TIME, round=0, outcome=Outcome.SKIPPED)
        if planned.refusal:
            return replace(left_out, outcome=Outcome.UNSUPPORTED, reason=planned.refusal)
        cause, reason = self.limit(planned) or (Cause.BUDGET, self.beyond_budget(planned))
        return replace(left_out, cause=cause, reason=reason)

    def beyond_budget(self, planned: Planned) -> str:
        """What is left of the budget, and what a case is predicted to take."""
        left_s = self.left_s()
        left = f"{units.seconds(left_s)} left" if left_s >= 1 else "nothing left"
        costs = f"{self.predicted(planned)}, {units.seconds(self.cost_s(planned))} in total"
        if self.costs.is_unknown(planned, Cost.SECONDS):
            costs = "its costs are unknown"
        return f"would exceed --budget ({left}): {costs}"

    def predicted(self, planned: Planned) -> str:
        """What an iteration is predicted to take, in words."""
        return f"predicted {units.seconds(self.costs.iteration_s(planned))} per iteration"

    def limit(self, planned: Planned) -> tuple[Cause, str] | None:
        """Why a case cannot run whatever the budget, as far as known by now, or None.

        After a shorter length of its curve ran out of memory or time, it is not tried.
        """
        w = planned.case.workload
        for other, run in self.on_curve(planned):
            # of several fixed batches; c // N · N is more than c / 2
            shorter = other.seq_len < w.seq_len and other.tokens <= 2 * w.tokens
            row = OUTCOMES[run.outcome]
            if shorter and row.beyond is not None:
                reason = f"not run: already {row.already} at N = {units.count(other.seq_len)}"
                return row.beyond, reason
        needed_bytes = self.costs.needed_bytes(planned)
        if needed_bytes > self.memory_bytes and not self.costs.is_unknown(planned, Cost.BYTES):
            most, needed = units.size(int(self.memory_bytes)), units.size(needed_bytes / MARGIN)
            spare = f"{100 * (MARGIN - 1):.0f} % to spare"
            reason = f"needs about {needed} and {spare}; the limit on memory is {most}"
            return Cause.MEMORY_LIMIT, reason
        visit_s, limit_s = self.visit_s(planned), self.request.case_timeout_s
        if limit_s and visit_s > limit_s and not self.costs.is_unknown(planned, Cost.SECONDS):
            reason = f"would exceed --case-timeout ({units.seconds(limit_s)}):"
            reason += f" {self.predicted(planned)}, {units.seconds(visit_s)} per round"
            return Cause.CASE_TIMEOUT, reason
        return None

    def link(self, block: Block) -> Planned | None:
        """What races again with cases not yet timed in this round; None before the first race."""
        timed = [planned for planned in self.blocks[block] if self.was_timed(planned)]
        return min(timed, key=self.costs.iteration_s, default=None)

    def link_s(self, block: Block) -> float:
        """Predicted seconds of what races again with cases not yet timed in this round."""
        link = self.link(block)
        return self.visit_s(link) if link else 0.0

    def cost_s(self, planned: Planned) -> float:
        """Predicted seconds of what is not done of a case's first visit: time and memory."""
        visit_s = 0.0 if self.is_done(planned) else self.visit_s(planned)
        return visit_s + (self.costs.memory_s(planned) if self.lacks_memory(planned) else 0.0)

    def visit_s(self, planned: Planned, wall_s: float = 0.0) -> float:
        """Predicted seconds of one visit to a case; `wall_s` of an iteration if measured."""
        return self.costs.visit_s(planned, self.settings, wall_s)

    def timeout_s(self, planned: Planned, wall_s: float = 0.0) -> float:
        """Seconds after which the process of a case is killed; `wall_s` if measured."""
        compiling_s = COMPILING_S if planned.compiles or planned.tunes else 0.0
        longest_s = max(AT_LEAST_S, OVERTIME * self.visit_s(planned, wall_s)) + compiling_s
        limit_s = self.request.case_timeout_s
        return longest_s if limit_s is None else min(longest_s, limit_s)

    def is_suspicious(self, planned: Planned) -> bool:
        """Whether to look for odd behaviour in the code of others: once per curve, and again at
        lengths that are much longer; and in each later round at the shortest length that was timed,
        if it is short, since another process may do something else.
        """
        if planned.own:
            return False
        length, runs = planned.case.workload.seq_len, [*self.on_curve(planned)]
        if self.round:
            timed = (w.seq_len for w, run in runs if run.outcome is Outcome.OK)
            short = self.costs.iteration_s(planned) <= SHORT * self.settings.sample_s
            return short and length <= min(timed, default=length)
        examined = (w.seq_len for w, run in runs if Note.EXAMINED in run.notes)
        return length >= FAR * max(examined, default=0)

    def with_sign(self, planned: Planned, run: Run) -> Run:
        """A run of a later round; suspect if it took much less than the first round did.

        By wall time it is not: other programs may have slowed one of the two.
        """
        first = self.timed(planned).get(0)
        if planned.own or not run.round or first is None or run.outcome is not Outcome.OK:
            return run
        before_s, now_s = (seconds(each.samples) for each in (first, run))
        if len(before_s) < LEAST_LAPS or not now_s or min(before_s) <= LESS * max(now_s):
            return run
        sign = f"took more than {LESS:g} times as long in the first round as in a later one"
        signs = dict.fromkeys(filter(None, [*run.notes.get(Note.SUSPECT, "").split("; "), sign]))
        return replace(run, notes={**run.notes, Note.SUSPECT: "; ".join(signs)})

    def on_curve(self, planned: Planned) -> Iterator[tuple[Workload, Run]]:
        """What was measured of the time of all lengths of a case's curve."""
        for other in self.curves[curve(planned.case)]:
            for run in self.runs[other.case.key].values():
                yield other.case.workload, run

    def is_crowded(self, planned: Planned) -> bool:
        """Whether a case needs the memory that idle processes may keep, contexts included."""
        return self.costs.needed_bytes(planned) > (1 - KEPT) * self.memory_bytes

    def keep_too_much(self, cases: Iterable[Planned]) -> bool:
        """Whether the heaps that these cases leave are more than their processes may keep."""
        kept_bytes = sum(self.costs.predicted(Cost.BYTES, planned) for planned in cases)
        return not self.device.gpus and kept_bytes > KEPT * self.memory_bytes

    def races(self, cases: Sequence[Planned]) -> list[list[Planned]]:
        """The races of some cases of a block: one if memory allows, otherwise several.

        Processes of one race need not end for another.
        """
        needed = self.costs.needed_bytes
        room = self.device.shared * self.memory_bytes
        room -= len(set(self.costs.names.values())) * self.costs.context_bytes
        return groups(cases, needed, room, self.memory_bytes, self.link(cases[0].block))

    def lacks_memory(self, planned: Planned) -> bool:
        """Whether the memory of the case is still to be measured."""
        return planned.case.key not in self.weighed

    def timed(self, planned: Planned) -> dict[int, Run]:
        """The runs that timed the case, by round."""
        runs = self.runs[planned.case.key].items()
        return {round_: run for round_, run in runs if run.outcome is Outcome.OK}

    def was_timed(self, planned: Planned) -> bool:
        """Whether this round timed the case."""
        run = self.runs[planned.case.key].get(self.round)
        return run is not None and run.outcome is Outcome.OK

    def is_done(self, planned: Planned) -> bool:
        """Whether this round has an outcome of the case."""
        return self.round in self.runs[planned.case.key]

    def repeatable(self) -> list[Planned]:
        """Cases that were timed and that no round failed to time."""
        runs = self.runs
        return [p for p in self.plan if runs[p.case.key] and self.timed(p) == runs[p.case.key]]

    def laps(self) -> dict[tuple[str, Block], dict[int, Laps]]:
        """The pairs of laps of each round, by series and block, of cases that can be repeated."""
        cases = {planned.case.key: planned for planned in self.repeatable()}
        every = [run for key in cases for run in self.runs[key].values()]
        runs = [run for run in every if run.samples]  # a dry run has none
        slope = sweep_slope(runs, {key: planned.block for key, planned in cases.items()})
        laps: dict[tuple[str, Block], dict[int, Laps]] = {}
        for run in runs:
            case = self.series(cases[run.case]), cases[run.case].block
            laps.setdefault(case, {})[run.round] = by_pair(run.samples, slope)
        return laps

    def runs_of(self, block: Block) -> dict[str, tuple[Run, ...]]:
        """The runs of each series that was timed in a block, round by round."""
        timed = {self.series(planned): self.timed(planned) for planned in self.blocks[block]}
        return {name: tuple(own[r] for r in sorted(own)) for name, own in timed.items() if own}

    def next_lap(self, block: Block) -> int:
        """The next lap of a block in this round."""
        runs = [self.timed(planned).get(self.round) for planned in self.blocks[block]]
        return next_pair(s.lap for run in runs if run for s in run.samples if s.lap is not None)

    def draw(self) -> random.Random:
        """The random generator of this round's order."""
        return random.Random(f"{self.request.settings.seed}-{self.round}")


def blocks(plan: Iterable[Planned]) -> dict[Block, list[Planned]]:
    """The cases of each block."""
    blocks: dict[Block, list[Planned]] = {}
    for planned in plan:
        blocks.setdefault(planned.block, []).append(planned)
    return blocks


def together(before: Run, run: Run) -> Run:
    """A run with the laps that a later race of its round added, or what became of that."""
    notes = dict(before.notes)
    if run.outcome is not Outcome.OK:
        notes[Note.LATER] = f"{run.outcome} in a later race of its round: {run.reason}"
    samples, elapsed_s = before.samples + run.samples, before.elapsed_s + run.elapsed_s
    return replace(before, samples=samples, notes=notes, elapsed_s=elapsed_s)


def seconds(samples: Iterable[Sample]) -> list[float]:
    """Seconds of an iteration in each lap by the device's clock or in CPU time, without laps that
    were disturbed.
    """
    clocks = (each for each in samples if each.device_s is not None or each.clock is Clock.CPU)
    return [each.seconds for each in clocks if each.disturbed is None]


def curve(case: Case) -> Case:
    """What the cases of one curve have in common, over all lengths."""
    return replace(case, workload=replace(case.workload, batch=1, seq_len=1))


def groups(
    cases: Sequence[Planned],
    needed: Callable[[Planned], float],
    room: float,
    memory_bytes: float,
    link: Planned | None = None,
) -> list[list[Planned]]:
    """The races of a block: one if memory allows, otherwise several that share the link.

    A race may use `room` of the memory. The `link` has raced before; without one it is the case
    that needs least. A case that does not fit into memory together with it runs alone.
    """
    rest, has_raced = sorted(cases, key=needed), link is not None
    if link is None:
        link, *rest = rest
    found = [[link]]
    for planned in rest:
        if needed(link) + needed(planned) > memory_bytes:
            found.append([planned])
        elif len(found[-1]) > 1 and sum(map(needed, found[-1])) + needed(planned) > room:
            found.append([link, planned])
        else:
            found[-1].append(planned)
    return [group for group in found if not has_raced or group != [link]]
