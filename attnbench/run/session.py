"""The loop of a sweep: rounds of blocks, raced; every outcome is written.

A block is all series at one mode and length. Round 0 visits every block that the budget reaches,
shorter lengths first, and weighs each case once. Later rounds repeat the blocks: all of them
while the budget lasts, else those whose ratios are known worst. `start` and the clock are
callables, so that a test can answer with made-up times.
"""

import math
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import median, stdev
from typing import Any, Protocol

from attnbench.analysis import predict
from attnbench.analysis.curves import series_names
from attnbench.analysis.ratios import log_ratio
from attnbench.records import Mode, Outcome, Part, Planned, Request, Run
from attnbench.run import schedule
from attnbench.run.race import CUT_OFF, LEAST_S, Entry, Race, Round, Worker

OVERTIME = 5.0  # a visit may take this many times what was predicted, and at least
AT_LEAST_S = 60.0
WANTED_ROUNDS = 3  # of what is cheap, before a dear case is tried at all
DEAR = 0.1  # of the budget: what costs more may have to wait for the repeats of the others
LIGHT = 0.02  # of the budget: what costs more is weighed when all is timed

Block = tuple[Mode, int]


class Start(Protocol):
    """Starts a process for a series, to be timed in or to be weighed in."""

    def __call__(self, series: str, *, weighs: bool = False) -> Worker: ...


class Store(Protocol):
    """Where runs go; `store.journal.Journal` is the real one."""

    def append(self, *records: Any) -> None: ...


@dataclass(frozen=True)
class Progress:
    """What is happening now: `left_s` is what is still to do, by prediction, within the budget."""

    done: int  # visits of a case
    mode: Mode
    seq_len: int
    running: str  # the series whose turn it is
    round: int
    left_s: float


@dataclass
class Session:
    """One stretch of work on a sweep.

    `finished` are the (case key, part, round) that an earlier session stored. `memory_bytes` is
    what a case may use. `run` ends early, without an error, when the budget is spent.
    """

    request: Request
    plan: tuple[Planned, ...]
    store: Store
    start: Start
    memory_bytes: int
    earlier: tuple[Run, ...] = ()
    finished: frozenset[tuple[str, Part, int]] = frozenset()
    observe: Callable[[Progress], None] = lambda progress: None
    clock: Callable[[], float] = time.monotonic
    begun: float = math.nan  # now, unless the budget began to run earlier
    over_budget: bool = False
    # what was measured of each mechanism with its options, so that a prediction looks at few
    times: dict[Any, list[tuple[Planned, float]]] = field(default_factory=dict)
    peaks: dict[Any, list[tuple[Planned, float]]] = field(default_factory=dict)
    ratios: list[float] = field(default_factory=list)
    guess_factor: float = 1.0  # by what factor first guesses were off: the median of the ratios
    ended: list[tuple[Any, Run]] = field(default_factory=list)
    timed: dict[tuple[str, int], Run] = field(default_factory=dict)  # by case and round
    weighed: set[str] = field(default_factory=set)  # cases
    failed: set[str] = field(default_factory=set)  # cases of which a timed run did not end well
    waiting_s: float = 0.0  # predicted seconds of what is left of the present round
    round: int = 0
    told: Block | None = None  # the block that `due` was predicted for
    due: float = 0.0  # when everything will be done, without a budget
    done: int = 0  # visits
    useful_s: float = 0.0  # seconds in warm-up and samples

    def run(self) -> None:
        """Round 0 with memory, then repeats."""
        if math.isnan(self.begun):
            self.begun = self.clock()
        self.names = series_names(self.plan)
        self.recall()
        self.first_round()
        while self.round + 1 < self.request.rounds:
            self.round += 1
            if not self.repeat():
                break

    def recall(self) -> None:
        """Learn from the runs of earlier sessions, and write the refusals of the plan."""
        by_key = {line.case.key: line for line in self.plan}
        for run in self.earlier:
            if run.case in by_key and (run.case, run.part, run.round) in self.finished:
                self.learn(by_key[run.case], run)
        for line in self.plan:
            if line.refusal:
                self.note(line, Outcome.UNSUPPORTED, line.refusal)

    def first_round(self) -> None:
        """Every block from short to long, with every case that fits; then its memory."""
        blocks = self.blocks(line for line in self.plan if not line.refusal)
        order = sorted(blocks, key=lambda block: (block[1], self.cost(blocks[block])))
        with self.processes() as processes:
            for place, block in enumerate(order):
                later = [line for each in order[place + 1 :] for line in blocks[each]]
                self.waiting_s = self.cost(later)
                admitted = self.admitted(blocks[block])
                self.visit(processes, admitted)
                for line in filter(self.went_well, admitted):
                    if self.is_light(line):
                        self.weigh(line)
        for line in sorted(filter(self.went_well, self.plan), key=self.predicted):
            if self.is_weighed(line):
                continue
            if self.time_left(self.weigh_s(line)):
                self.weigh(line)
            else:
                self.over_budget = True

    def admitted(self, lines: Sequence[Planned]) -> list[Planned]:
        """The cases of a block that are to run now, cheapest first; of the others, why not."""
        found: list[Planned] = []
        for line in sorted(lines, key=self.predicted):
            if refusal := self.refusal(line, found):
                self.note(line, Outcome.SKIPPED, refusal)
            else:
                found.append(line)
        return found

    def refusal(self, line: Planned, others: Sequence[Planned]) -> str:
        """Why a case does not run beside the `others` of its block now, or nothing."""
        if self.is_done(line, Part.TIME):
            return ""
        iteration_s, cost = self.predicted(line), self.cost([line])
        if reason := schedule.blocked(line.case, self.ended):
            return reason
        if self.needed(line) > self.memory_bytes:
            return schedule.too_large(self.needed(line) / schedule.MARGIN, self.memory_bytes)
        limit, visit_s = self.request.case_timeout_s, self.visits_s([line])
        if limit and visit_s > limit:
            return schedule.too_long(iteration_s, visit_s, limit)
        promised = self.cost(others)
        if self.must_wait(line, others):
            promised += self.repeats_s(others)
        if not self.time_left(promised + cost):
            self.over_budget = True
            left_s = max(0.0, self.left_s() - promised)
            return schedule.too_dear(iteration_s, cost, left_s)
        return ""

    def must_wait(self, line: Planned, others: Sequence[Planned]) -> bool:
        """Whether a dear case comes after the repeats of what is cheaper.

        That is a sequence longer than the tokens of a batch, or a further form of a mechanism.
        """
        if self.request.budget_s is None or self.cost([line]) <= DEAR * self.request.budget_s:
            return False
        longer = line.case.workload.seq_len > self.request.tokens
        return longer or any(kin(line) == kin(other) for other in others)

    def repeat(self) -> bool:
        """One more round of what went well, as far as the budget goes; whether any was left."""
        waiting = [p for p in self.plan if self.ran(p) and not self.is_done(p, Part.TIME)]
        blocks = self.blocks(self.affordable(waiting))
        order = list(blocks)
        self.draw().shuffle(order)
        with self.processes() as processes:
            for place, block in enumerate(order):
                later = [line for each in order[place + 1 :] for line in blocks[each]]
                self.waiting_s = self.visits_s(later)
                if self.time_left(self.visits_s(blocks[block])):
                    self.visit(processes, blocks[block])
                else:
                    self.over_budget = True
        return bool(blocks) or not waiting

    def affordable(self, lines: Sequence[Planned]) -> list[Planned]:
        """What the budget is enough for in this round.

        The cheapest cases come first until they have the wanted rounds, later the blocks whose
        ratios are known worst.
        """
        wanted = self.round < WANTED_ROUNDS
        key = self.predicted if wanted else lambda line: self.precision(block_of(line))
        found, promised = [], 0.0
        for line in sorted(lines, key=key):
            if self.time_left(promised + (cost := self.visits_s([line]))):
                found.append(line)
                promised += cost
            else:
                self.over_budget = True
        return found

    def precision(self, block: Block) -> tuple[float, float]:
        """The key by which blocks are repeated: the widest ratio first, then the cheapest."""
        lines = [line for line in self.plan if block_of(line) == block and self.ran(line)]
        errors = [self.ratio_error(lines[0], line) for line in lines[1:]]
        return -max(errors, default=0.0), self.visits_s(lines)

    def ratio_error(self, one: Planned, other: Planned) -> float:
        """The standard error of a log ratio so far; infinite after a single round."""
        pairs = (
            (self.timed.get((one.case.key, r)), self.timed.get((other.case.key, r)))
            for r in range(self.round)
        )
        logs = [found for a, b in pairs if a and b and (found := log_ratio(a, b)) is not None]
        return stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.inf

    def visit(self, processes: Round, lines: Sequence[Planned]) -> None:
        """Race the cases of one block in this round, but those that have run in it already."""
        missing = [line for line in lines if not self.is_done(line, Part.TIME)]
        if not missing:
            return
        block = block_of(missing[0])
        present = (p for p in self.plan if block_of(p) == block and self.went_well(p))
        anchor = min(present, key=self.needed, default=None)
        room = schedule.SHARED * self.memory_bytes
        racing = [*([anchor] if anchor else []), *missing]
        for group in schedule.groups(racing, self.needed, room, anchor):
            self.race(processes, group)

    def race(self, processes: Round, lines: Sequence[Planned]) -> None:
        """Race cases that have room beside one another, and write their runs."""
        settings = self.request.settings
        names = {self.names[line.case.key]: line for line in lines}
        about = {
            "warmup_s": settings.warmup_s,
            "cold": settings.cold,
            "suspicious": self.round == 0,
        }
        race = Race(
            builds={name: {**asdict(line.case), **about} for name, line in names.items()},
            turns=lambda times: {n: schedule.turns(s, settings) for n, s in times.items()},
            limit_s=lambda name, iteration_s: self.timeout(names[name], iteration_s),
            left_s=self.left_s,
            rehearse=True,
            first_lap=2 * self.pairs_so_far(block_of(lines[0])),
        )
        entries = processes.race(race, lambda name: self.tell(names[name], name))
        runs: dict[str, Run] = {}
        for name, entry in entries.items():
            line = names[name]
            if entry.failed is not CUT_OFF:
                runs[name] = self.to_run(line, entry)
                continue
            self.over_budget = True
            if not self.round and not self.went_well(line):
                self.note(line, Outcome.SKIPPED, CUT_OFF["reason"])
        if runs:
            self.store.append(*runs.values())
        for name, run in runs.items():
            self.learn(names[name], run)
            laps = entries[name].laps.values()
            self.useful_s += run.values.get("warmup_s", 0.0) + sum(each.wall_s for each in laps)
        self.done += len(lines)

    def to_run(self, line: Planned, entry: Entry) -> Run:
        """The record of what one case gave; an anchor's laps join those of its earlier races."""
        failed = entry.failed or {}
        run = Run(
            case=line.case.key,
            part=Part.TIME,
            round=self.round,
            outcome=Outcome(failed.get("outcome", Outcome.OK)),
            reason=failed.get("reason", ""),
            samples=tuple(sample._replace(lap=lap) for lap, sample in entry.laps.items()),
            values=entry.finished.get("values", {}),
            notes=failed.get("notes") or entry.finished.get("notes", {}),
            elapsed_s=entry.elapsed_s,
        )
        before = self.timed.get((run.case, run.round))
        if before is None:
            return run
        notes = dict(before.notes)
        if failed:
            notes["later"] = f"{run.outcome} in a later race of its round: {run.reason}"
        return replace(before, samples=before.samples + run.samples, notes=notes)

    def weigh(self, line: Planned) -> None:
        """Peaks and counts of a case, in a process of its own."""
        if self.is_weighed(line):
            return
        name = self.names[line.case.key]
        self.tell(line, f"{name}, memory")
        begun, worker = self.clock(), self.start(name, weighs=True)
        try:
            limit_s = min(self.timeout(line), max(LEAST_S, self.left_s()))
            answer = worker.ask(limit_s, do="weigh", **asdict(line.case))
        finally:
            worker.end()
        if answer["outcome"] == "timeout" and self.left_s() <= 0:
            self.over_budget = True
            return
        run = Run(
            case=line.case.key,
            part=Part.MEMORY,
            round=0,
            outcome=Outcome(answer["outcome"]),
            reason=answer.get("reason", ""),
            values=answer.get("values", {}),
            notes=answer.get("notes", {}),
            elapsed_s=self.clock() - begun,
        )
        self.weighed.add(line.case.key)
        self.store.append(run)
        self.learn(line, run)

    def note(self, line: Planned, outcome: Outcome, reason: str) -> None:
        """Write a case that is not run."""
        if not self.is_done(line, Part.TIME):
            run = Run(case=line.case.key, part=Part.TIME, round=0, outcome=outcome, reason=reason)
            self.store.append(run)
            self.learn(line, run)

    def learn(self, line: Planned, run: Run) -> None:
        """Use a result for the predictions to come."""
        if run.part is Part.TIME and run.outcome in schedule.ENDS:
            self.ended.append((line.case, run))
        if run.part is Part.TIME and run.outcome is not Outcome.OK:
            self.failed.add(run.case)
        elif run.part is Part.TIME and run.samples:
            self.timed[run.case, run.round] = run
            took = median(s.wall_s / s.iterations for s in run.samples)
            self.times.setdefault(kin(line), []).append((line, took))
            self.ratios.append(took / line.predicted_s)
            self.guess_factor = median(self.ratios)
        if peak := run.values.get("allocated_peak_bytes"):
            self.peaks.setdefault(kin(line), []).append((line, peak))

    def predicted(self, line: Planned) -> float:
        """Seconds of one iteration: measured if it has been, else predicted."""
        known = self.times.get(kin(line), [])
        own = [took for other, took in known if other is line]
        return own[-1] if own else predict.seconds(line, known, self.guess_factor)

    def needed(self, line: Planned) -> float:
        """Bytes to keep free for a case."""
        return schedule.MARGIN * predict.scaled_bytes(line, self.peaks.get(kin(line), []))

    def weigh_s(self, line: Planned) -> float:
        """Predicted seconds of weighing a case."""
        return schedule.weigh_s(self.predicted(line))

    def is_light(self, line: Planned) -> bool:
        """Whether weighing a case takes nothing from the budget that matters."""
        budget_s = self.request.budget_s
        return budget_s is None or self.weigh_s(line) <= LIGHT * budget_s

    def is_weighed(self, line: Planned) -> bool:
        """Whether a session has weighed the case."""
        return self.is_done(line, Part.MEMORY) or line.case.key in self.weighed

    def visits_s(self, lines: Iterable[Planned]) -> float:
        """Predicted seconds of one visit to each."""
        settings = self.request.settings
        return sum(schedule.visit_s(self.predicted(line), settings) for line in lines)

    def cost(self, lines: Iterable[Planned]) -> float:
        """Predicted seconds of what round 0 has still to do of each."""
        missing = list(lines)
        timed = [line for line in missing if not self.is_done(line, Part.TIME)]
        weighed = (line for line in missing if self.is_light(line) and not self.is_weighed(line))
        return self.visits_s(timed) + sum(map(self.weigh_s, weighed))

    def repeats_s(self, admitted: Sequence[Planned]) -> float:
        """Predicted seconds of the wanted repeats of what has run, and of what is about to."""
        rounds = min(WANTED_ROUNDS, self.request.rounds) - 1
        return rounds * self.visits_s([*filter(self.ran, self.plan), *admitted])

    def left_s(self) -> float:
        """Seconds left of the budget; infinite without one."""
        if self.request.budget_s is None:
            return math.inf
        return self.request.budget_s - (self.clock() - self.begun)

    def time_left(self, needed_s: float) -> bool:
        return needed_s <= self.left_s()

    def timeout(self, line: Planned, iteration_s: float = 0.0) -> float:
        """Seconds after which the process of a case is killed, measured as taking that long."""
        usual = schedule.visit_s(iteration_s or self.predicted(line), self.request.settings)
        limits = [max(AT_LEAST_S, OVERTIME * usual)]
        if self.request.case_timeout_s is not None:
            limits.append(self.request.case_timeout_s)
        return min(limits)

    def ran(self, line: Planned) -> bool:
        """Whether round 0 timed the case, and no round has failed."""
        return (line.case.key, 0) in self.timed and line.case.key not in self.failed

    def went_well(self, line: Planned) -> bool:
        """Whether this round timed the case."""
        return (line.case.key, self.round) in self.timed

    def is_done(self, line: Planned, part: Part) -> bool:
        """Whether an earlier session stored this round of the case."""
        round_ = 0 if part is Part.MEMORY else self.round
        return (line.case.key, part, round_) in self.finished

    def blocks(self, lines: Iterable[Planned]) -> dict[Block, list[Planned]]:
        """The lines of each mode and length."""
        found: dict[Block, list[Planned]] = {}
        for line in lines:
            found.setdefault(block_of(line), []).append(line)
        return found

    def pairs_so_far(self, block: Block) -> int:
        """Pairs of laps that this round has run in a block."""
        runs = (self.timed.get((p.case.key, self.round)) for p in self.plan if block_of(p) == block)
        laps = [s.lap for run in runs if run for s in run.samples if s.lap is not None]
        return (max(laps, default=-1) + 1) // 2

    def processes(self) -> Round:
        return Round(self.start, self.draw(), self.clock)

    def draw(self) -> random.Random:
        """This round's random order."""
        return random.Random(f"{self.request.settings.seed}-{self.round}")

    def tell(self, line: Planned, running: str) -> None:
        """Say what runs now; what is left is predicted once a block."""
        mode, seq_len = block = block_of(line)
        if block != self.told:
            self.told = block
            again = max(0, min(WANTED_ROUNDS, self.request.rounds) - 1 - self.round)
            self.waiting_s += again * self.visits_s(filter(self.ran, self.plan))
            self.due = self.clock() + self.waiting_s + self.cost([line])
        left_s = min(self.due - self.clock(), self.left_s())
        self.observe(Progress(self.done, mode, seq_len, running, self.round, left_s))


def block_of(line: Planned) -> Block:
    """Mode and length: what the cases of a block share."""
    return line.case.workload.mode, line.case.workload.seq_len


def kin(line: Planned) -> tuple[str, Any]:
    """What the cases that predict one another have in common."""
    return line.case.mechanism, line.case.options
