"""The loop of a sweep: rounds of raced blocks; every outcome is stored.

A block is all series at one mode, length and variant of the sizes. Round 0 visits every block that
the budget reaches, shorter lengths first; a case that a prediction left out is reconsidered when
later measurements predict that it fits. Later rounds repeat the blocks until all their ratios are
known to the precision requested, the least certain ones first if the budget is not enough for all.
Extras, lengths beyond the tokens of a batch and further forms of a mechanism, wait until the rest
and shorter extras have been repeated if the budget is not enough for all, but for the first few.
The memory of each case is measured once: in a share of the budget after round 0, the rest before
more than the wanted rounds. `start` and the clock are callables, so that tests can replace them.

A session may have only some rounds of some blocks, those of a shard. Its own first round then
visits each of its blocks once, whatever the number of that round in the whole sweep.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Protocol

from attnbench.records import Block, Cause, Outcome, Part, Planned, Run
from attnbench.run import schedule
from attnbench.run.history import blocks
from attnbench.run.outlook import Outlook
from attnbench.run.pace import Pace
from attnbench.run.race import CUT_OFF, LEAST_S, Entrant, Race, Round, run_of
from attnbench.run.workers import WorkerHandle

MEMORY = 0.1  # share of the budget kept for measuring memory in the first rounds
# causes that later predictions may remove
PREDICTED = frozenset({Cause.BUDGET, Cause.CASE_TIMEOUT, Cause.MEMORY_LIMIT})


@dataclass(frozen=True)
class Progress:
    """What is happening now; `left_s` is the predicted time left, within the budget.

    `total` counts the visits that fit into it, as far as the next rounds are planned.
    """

    done: int  # visits to cases
    total: int
    mode: str
    seq_len: int
    running: str  # the series whose turn it is
    round: int
    left_s: float


@dataclass(frozen=True)
class BlockVisited:
    """What is known of a block once some or all of its series have been visited in a round."""

    block: Block
    round: int
    series: tuple[str, ...]  # those timed just now
    runs: Mapping[str, tuple[Run, ...]]  # of each series timed so far, round by round


class Store(Protocol):
    """Where runs are stored as they end: a journal, or a substitute."""

    def append(self, *runs: Run) -> None: ...


@dataclass(kw_only=True)
class Session(Outlook):
    """One uninterrupted session of a sweep.

    `start` starts a process for a series, to measure memory if `measures_memory`, otherwise time;
    those of the same `round_` have the same memory layout.
    `earlier` are the runs in the journal. `run` ends early, without an error, when the budget is
    spent.
    """

    store: Store
    start: Callable[..., WorkerHandle]
    pace: Pace | None = None  # None: the speed of the core is unknown
    earlier: tuple[Run, ...] = ()
    observe: Callable[[Progress], None] = lambda progress: None
    observe_block: Callable[[BlockVisited], None] = lambda visited: None
    name: str = ""  # of the shard; it seeds the orders of the turns
    over_budget: bool = False
    useful_s: float = 0.0  # seconds in warm-up and samples
    reached: int = 0  # the last round that began
    visits: int = 0
    coming: Sequence[Planned] = ()  # the cases of this and of the round's later blocks
    shown: tuple[Block, int] | None = None  # block and round in which the next two were predicted
    end_s: float = 0.0  # when everything would be done, without a budget
    total: int = 0  # visits until then, or until the end of the budget
    deferred: list[Planned] = field(default_factory=list)  # until the rest has been repeated
    may_defer: bool = True
    left_out: dict[str, tuple[Planned, Cause]] = field(default_factory=dict)  # by predictions alone

    def run(self) -> None:
        """Run round 0, then repeats, and measure memory between them."""
        if math.isnan(self.begun):
            self.begun = self.clock()
        self.recall()
        self.memory_reserve_s = MEMORY * (self.request.budget_s or 0.0)
        self.first_round([planned for planned in self.plan if not planned.refusal])
        self.measure_memories(self.memory_reserve_s if self.request.budget_s else math.inf)
        self.memory_reserve_s = 0.0
        self.repeat(wanted=True)
        while self.deferred:
            waiting, self.deferred, self.may_defer, self.round = self.deferred, [], False, 0
            self.first_round(waiting)
            self.repeat(wanted=True)
        self.measure_memories(math.inf)
        self.repeat()
        self.over_budget |= any(cause is Cause.BUDGET for _, cause in self.left_out.values())

    def recall(self) -> None:
        """Learn from the runs of earlier sessions, and store what the plan refuses."""
        by_key = {planned.case.key: planned for planned in self.plan}
        for run in self.earlier:
            if run.case in by_key and (run.case, run.part, run.round) in self.finished:
                self.history.learn(by_key[run.case], run)
        for planned in self.plan:
            if planned.refusal:
                self.leave_out(planned, Outcome.UNSUPPORTED, planned.refusal)

    def first_round(self, plan: Sequence[Planned]) -> None:
        """Race every block from short to long, with every case that fits."""
        waiting = sorted(blocks(plan).values(), key=lambda b: (b[0].block.seq_len, self.cost_s(b)))
        with self.processes() as processes:
            while waiting:
                block, *waiting = waiting
                admitted = self.admitted(block)
                later = [planned for block in waiting for planned in block]
                self.coming = [*admitted, *(p for p in later if not self.limit(p))]
                self.visit(processes, admitted)
                left_out = (planned for planned, _ in self.left_out.values())
                again = [planned for planned in left_out if not self.refusal(planned, ())]
                waiting = [*blocks(again).values(), *waiting]

    def measure_memories(self, most_s: float) -> None:
        """Measure memory where it is still missing, cheapest first, in at most `most_s`."""
        self.round, self.coming = 0, ()
        end_s = min(most_s, self.left_s()) + self.clock()
        timed = {key for key, _ in self.history.timed}
        waiting = [p for p in self.plan if p.case.key in timed and self.lacks_memory(p)]
        with self.processes() as processes:
            for planned in sorted(waiting, key=self.history.iteration_s):
                if self.clock() + self.memory_s(planned) <= end_s:
                    self.measure_memory(processes, planned)
                elif most_s == math.inf:
                    self.over_budget = True

    def admitted(self, block: Sequence[Planned]) -> list[Planned]:
        """The cases of a block that run now, cheapest first; stores why others do not."""
        admitted: list[Planned] = []
        for planned in block:  # those that were left out are reconsidered
            self.left_out.pop(planned.case.key, None)
        extras = [planned for planned in block if planned.case.key in self.extras]
        if self.may_defer and self.must_wait(extras):
            self.deferred += extras
            block = [planned for planned in block if planned not in extras]
        self.may_defer = True
        for planned in sorted(block, key=self.history.iteration_s):
            if refusal := self.refusal(planned, admitted):
                self.leave_out(planned, Outcome.SKIPPED, refusal.reason, refusal.cause)
                if refusal.cause in PREDICTED:
                    self.left_out[planned.case.key] = planned, refusal.cause
            else:
                admitted.append(planned)
        return admitted

    def repeat(self, wanted: bool = False) -> None:
        """Further rounds of the cases that succeeded, until precise or the budget is spent.

        If `wanted`, only those that come before further extras.
        """
        most = self.wanted if wanted else max(map(len, self.rounds.values()), default=0)
        for self.round in range(1, most):
            self.reached, self.certain = self.round, self.history.certainties()
            due = [p for p in self.history.repeatable() if self.is_due(p, wanted)]
            missing = [planned for planned in due if not self.was_timed(planned)]
            self.visit_all(blocks(self.affordable(missing)))

    def visit_all(self, of_block: Mapping[Block, Sequence[Planned]]) -> None:
        """One round of the blocks, in random order."""
        order = list(of_block)
        self.draw().shuffle(order)
        with self.processes() as processes:
            for number, block in enumerate(order):
                self.coming = [planned for later in order[number:] for planned in of_block[later]]
                if self.left_s() >= self.visits_s(of_block[block]):
                    self.visit(processes, of_block[block])
                else:
                    self.over_budget = True

    def affordable(self, missing: Sequence[Planned]) -> list[Planned]:
        """The cases of this round that fit into the budget.

        The cheapest cases come first until they have the wanted rounds, then the blocks with the
        least certain ratios.
        """
        wanted = self.round < self.wanted
        affordable, reserved_s = [], 0.0
        for planned in sorted(missing, key=self.history.iteration_s if wanted else self.gain):
            cost_s = self.visits_s([planned])
            if reserved_s + cost_s <= self.left_s():
                affordable.append(planned)
                reserved_s += cost_s
            else:
                self.over_budget = True
        return affordable

    def gain(self, planned: Planned) -> tuple[float, float]:
        """The sort key of repeats: the block with the least certain ratio first."""
        cases = [other for other in self.history.repeatable() if other.block == planned.block]
        certain = self.certain.get(planned.block)
        return -certain.half if certain else 0.0, self.visits_s(cases)

    def visit(self, processes: Round, cases: Sequence[Planned]) -> None:
        """Race those cases of one block that have not run in this round yet."""
        missing = [planned for planned in cases if not self.is_done(planned)]
        if not missing:
            return
        anchor = self.anchor(missing[0].block)
        # so that the processes of one group need not end for another
        idle_bytes = len(set(self.history.names.values())) * self.history.context_bytes
        memory = self.room_bytes - idle_bytes, self.memory_bytes
        for group in schedule.groups(missing, self.history.needed_bytes, *memory, anchor):
            self.race(processes, group)
        if timed := tuple(self.history.name(p) for p in missing if self.was_timed(p)):
            block, round_ = missing[0].block, self.sweep_round(missing[0])
            self.observe_block(BlockVisited(block, round_, timed, self.history.runs_of(block)))

    def race(self, processes: Round, cases: Sequence[Planned]) -> None:
        """Race cases that fit into memory together, and store their runs."""
        settings, history = self.settings_of(cases[0]), self.history
        names = {history.name(planned): planned for planned in cases}
        idle = sum(worker.alive for name, worker in processes.running.items() if name not in names)
        builds = {
            name: {
                **asdict(planned.case),
                **settings.worker_settings,
                "filled": planned.filled,
                "compared": self.compares(planned),
                "suspicious": history.is_suspicious(planned),
                "return_large_blocks": self.returns_large_blocks(planned),
            }
            for name, planned in names.items()
        }
        race = Race(
            builds=builds,
            turns=lambda times: {n: schedule.turns(s, settings) for n, s in times.items()},
            limit_s=lambda name, iteration_s: self.timeout_s(names[name], iteration_s),
            left_s=self.left_s,
            first_lap=history.next_lap(cases[0].block, self.sweep_round(cases[0])),
            again_alone=True,
            end_others=self.exceeds_memory(cases, idle, schedule.FRAGMENTED),
        )
        entries = processes.race(race, lambda name: self.show(names[name], name))
        runs: dict[str, Run] = {}
        for name, entry in entries.items():
            if entry.failed is not CUT_OFF:
                runs[name] = self.to_run(names[name], entry)
                continue
            self.over_budget = True
            if not self.round and not self.was_timed(names[name]):
                self.leave_out(names[name], Outcome.SKIPPED, CUT_OFF["reason"], Cause.BUDGET)
        if runs:
            self.store.append(*runs.values())
        for name, run in runs.items():
            history.learn(names[name], run)
            laps_s = sum(sample.wall_s for sample in entries[name].laps.values())
            self.useful_s += run.values.get("warmup_s", 0.0) + laps_s
        self.visits += len(cases)

    def to_run(self, planned: Planned, entry: Entrant) -> Run:
        """The run of one case; an anchor's laps are added to those of its earlier races."""
        run = run_of(
            planned,
            Part.TIME,
            self.sweep_round(planned),
            entry.failed or entry.finished,
            samples=tuple(sample._replace(lap=lap) for lap, sample in entry.laps.items()),
            elapsed_s=entry.elapsed_s,
            predicted=self.history.prediction(planned),
        )
        before = self.history.timed.get((run.case, run.round))
        if before is None:
            return run
        notes = dict(before.notes)
        if entry.failed:
            notes["later"] = f"{run.outcome} in a later race of its round: {run.reason}"
        samples, elapsed_s = before.samples + run.samples, before.elapsed_s + run.elapsed_s
        return replace(before, samples=samples, notes=notes, elapsed_s=elapsed_s)

    def measure_memory(self, processes: Round, planned: Planned) -> None:
        """Measure peaks and counts of a case."""
        name = self.history.name(planned)
        self.show(planned, f"{name}, memory")
        begun = self.clock()
        limit_s = min(self.timeout_s(planned), max(LEAST_S, self.left_s()))
        crowded = self.exceeds_memory([planned], processes.alive)
        error = self.history.errors.get(planned.case.slice)
        about = {**asdict(planned.case), "filled": planned.filled, "error": error is None}
        answer = processes.measure_memory(name, limit_s, end_others=crowded, **about)
        if answer["outcome"] == "timeout" and self.left_s() <= 0:
            self.over_budget = True
            return
        run = run_of(planned, Part.MEMORY, 0, answer, elapsed_s=self.clock() - begun)
        if run.outcome is Outcome.OK and error is not None:
            run = replace(run, values={**run.values, "error": error})
        self.store.append(run)
        self.history.learn(planned, run)

    def leave_out(
        self, planned: Planned, outcome: Outcome, reason: str, cause: Cause | None = None
    ) -> None:
        """Store why a case does not run, if its first round is in this session's share."""
        if self.has_first(planned) and not self.is_done(planned):
            answer = {"outcome": outcome, "reason": reason, "cause": cause}
            predicted = self.history.prediction(planned) if cause else None
            self.store.append(run_of(planned, Part.TIME, 0, answer, predicted=predicted))

    def processes(self) -> Round:
        """The processes of this round, not started yet."""
        start = partial(self.start, round_=self.round)
        return Round(start, self.draw(), self.clock, self.pace)

    def draw(self) -> random.Random:
        """The random generator of this round's order."""
        return random.Random(f"{self.request.settings.seed}-{self.round}{self.name}")

    def show(self, planned: Planned, running: str) -> None:
        """Report what runs now; what is left is predicted once per block."""
        block, number = planned.block, self.sweep_round(planned)
        if (block, number) != self.shown:
            self.shown = block, number
            self.predict_end()
        left_s = min(self.end_s - self.clock(), self.left_s())
        total = max(self.total, self.visits)
        self.observe(
            Progress(self.visits, total, block.mode, block.seq_len, running, number, left_s)
        )

    def predict_end(self) -> None:
        """Predict when this round and the wanted ones after it end, and after how many visits."""
        rounds = max(0, self.wanted - 1 - self.reached)
        repeated = {p.case.key: p for p in self.history.repeatable()}
        if not self.round:
            repeated |= {p.case.key: p for p in self.coming}
        lacking = repeated.values() if self.request.budget_s is None else ()
        memory_s = self.memory_reserve_s + sum(
            self.memory_s(p) for p in lacking if self.lacks_memory(p)
        )
        visits_s = self.cost_s(self.coming) + rounds * self.visits_s(repeated.values())
        needed_s = visits_s + memory_s
        self.end_s = self.clock() + needed_s
        visits = sum(not self.is_done(p) for p in self.coming) + rounds * len(repeated)
        fitting = min(1.0, self.left_s() / needed_s) if needed_s else 1.0
        self.total = self.visits + round(fitting * visits)
