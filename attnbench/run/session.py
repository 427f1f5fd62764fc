"""The loop of a sweep: it visits blocks in the order of `run.order` and stores every outcome.

A block is all series at one mode, length and sizes; in a visit, cases of a block
race. The memory of a case is measured after its first race. `start` and the clock are callables, so
that tests can replace them.

A session may have only some rounds of some blocks, those of a shard. Its own first round then
visits each of its blocks once, whatever the number of that round in the whole sweep.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Protocol

from attnbench.records import Block, Cause, Outcome, Part, Planned, Run
from attnbench.run import order, schedule
from attnbench.run.outlook import Outlook
from attnbench.run.pace import Pace
from attnbench.run.race import CUT_OFF, LEAST_S, Entrant, Race, Round, run_of
from attnbench.run.workers import WorkerHandle


@dataclass(frozen=True)
class Progress:
    """What is happening now; `left_s` is the predicted time left, within the budget.

    `total` counts the visits that fit into it.
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
    useful_s: float = 0.0  # seconds in laps
    visits: int = 0
    shown: tuple[Block, int] | None = None  # block and round in which the next two were predicted
    end_s: float = 0.0  # when everything would be done, without a budget
    total: int = 0  # visits until then, or until the end of the budget

    def run(self) -> None:
        """Make every visit, then store why the cases that still wait were left out."""
        if math.isnan(self.begun):
            self.begun = self.clock()
        self.recall()
        for _, visits in groupby(order.visits(self), key=attrgetter("round")):
            with self.processes() as processes:
                for visit in visits:
                    self.visit(processes, visit.cases)
        for planned in self.waiting.values():
            run = self.left_out(planned)
            self.over_budget |= run.cause is Cause.BUDGET
            self.leave_out(planned, run)

    def recall(self) -> None:
        """Learn from the runs of earlier sessions, and store what the plan refuses."""
        by_key = {planned.case.key: planned for planned in self.plan}
        for run in self.earlier:
            if run.case in by_key and (run.case, run.part, run.round) in self.finished:
                self.history.learn(by_key[run.case], run)
        for planned in self.plan:
            if planned.refusal:
                self.leave_out(planned, self.left_out(planned))

    def visit(self, processes: Round, cases: Sequence[Planned]) -> None:
        """Race those cases of one block that have not run in this round yet.

        In the first round their memory is measured next.
        """
        if missing := [planned for planned in cases if not self.is_done(planned)]:
            anchor = self.anchor(missing[0].block)
            # so that the processes of one group need not end for another
            idle_bytes = len(set(self.history.names.values())) * self.history.context_bytes
            memory = self.room_bytes - idle_bytes, self.memory_bytes
            for group in schedule.groups(missing, self.history.needed_bytes, *memory, anchor):
                self.race(processes, group)
        if timed := tuple(self.history.name(p) for p in missing if self.was_timed(p)):
            block, round_ = missing[0].block, self.sweep_round(missing[0])
            self.observe_block(BlockVisited(block, round_, timed, self.history.runs_of(block)))
        if self.round:
            return
        for planned in cases:
            if self.was_timed(planned) and self.lacks_memory(planned):
                self.measure_memory(processes, planned)

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
                "suspicious": history.is_suspicious(planned, self.sweep_round(planned)),
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
                cut_off = {**CUT_OFF, "cause": Cause.BUDGET}
                predicted = history.prediction(names[name])
                run = run_of(names[name], Part.TIME, 0, cut_off, predicted=predicted)
                self.leave_out(names[name], run)
        if runs:
            self.store.append(*runs.values())
        for name, run in runs.items():
            history.learn(names[name], run)
            self.useful_s += sum(sample.wall_s for sample in entries[name].laps.values())
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
        """Measure peaks and counts of a case, unless the budget has ended."""
        if self.left_s() <= 0:
            self.over_budget = True
            return
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

    def leave_out(self, planned: Planned, run: Run) -> None:
        """Store why a case does not run, if its first round is in this session's share."""
        if self.has_first(planned) and not self.is_done(planned):
            self.store.append(run)

    def processes(self) -> Round:
        """The processes of this round, not started yet."""
        start = partial(self.start, round_=self.round)
        return Round(start, self.draw(), self.clock, self.pace)

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
        """Predict when all rounds of all cases would end, and after how many visits."""
        needed_s, visits, timed = 0.0, 0, self.history.rounds
        waiting = [planned for planned in self.waiting.values() if self.limit(planned) is None]
        for planned in (*waiting, *self.history.repeatable()):
            lacking = len(self.rounds[planned.block]) - timed[planned.case.key]
            memory_s = self.memory_s(planned) if self.lacks_memory(planned) else 0.0
            needed_s += memory_s + (lacking * self.visit_s(planned) if lacking else 0.0)
            visits += lacking
        self.end_s = self.clock() + needed_s
        fitting = min(1.0, self.left_s() / needed_s) if needed_s else 1.0
        self.total = self.visits + round(fitting * visits)
