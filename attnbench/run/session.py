"""The loop of a sweep: rounds of raced blocks; every outcome is stored.

A block is all series at one mode, length and variant of the sizes. Round 0 visits every block that
the budget reaches, shorter lengths first; a case that a prediction left out is asked again when
later measurements predict that it fits. Later rounds repeat the blocks until all their ratios are
known to the precision requested, the least certain ones first if the budget is not enough for all.
Extras, lengths beyond the tokens of a batch and further forms of a mechanism, wait until the rest
has been repeated if the budget is not enough for both. The memory of each case is measured once: in
a share of the budget after round 0, the rest before more than the wanted rounds. `start` and the
clock are callables, so that tests can replace them.

A session may have only some rounds of some blocks, those of a shard. Its own first round then
visits each of its blocks once, whatever number that round of the block has in the whole sweep.
"""

import math
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from attnbench import units
from attnbench.devices.finding import find
from attnbench.records import Block, Cause, Clock, Outcome, Part, Planned, Request, Run
from attnbench.run import schedule
from attnbench.run.history import History, blocks
from attnbench.run.predict import Rates
from attnbench.run.race import CUT_OFF, LEAST_S, Entrant, Race, Round, impossible
from attnbench.run.schedule import Refusal
from attnbench.run.workers import Answer, Worker
from attnbench.statistics.ratios import Certainty
from attnbench.store.schema import wrong

OVERTIME = 5.0  # a visit may take this many times its prediction, and at least
AT_LEAST_S = 60.0
COMPILING_S = 300.0  # further seconds for torch.compile, which depends on more than FLOPs
WANTED_ROUNDS = 3  # of the other cases, before the budget is spent on extras
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


class Store(Protocol):
    """Where runs are stored as they end: a journal, or a substitute."""

    def append(self, *runs: Run) -> None: ...


@dataclass
class Session:
    """One uninterrupted session of a sweep.

    `start` starts a process for a series, to measure memory if it `weighs`, otherwise time.
    `earlier` are the runs in the journal, `finished` those of them that count, as (case key, part,
    round). `memory_bytes` is what a case may use. `share` has the rounds of each block that are to
    be measured, by default all. `run` ends early, without an error, when the budget is spent.
    """

    request: Request
    plan: tuple[Planned, ...]
    store: Store
    start: Callable[..., Worker]
    memory_bytes: int
    earlier: tuple[Run, ...] = ()
    finished: frozenset[tuple[str, Part, int]] = frozenset()
    observe: Callable[[Progress], None] = lambda progress: None
    clock: Callable[[], float] = time.monotonic
    begun: float = math.nan  # when the budget began; NaN: when `run` is called
    share: Mapping[Block, tuple[int, ...]] | None = None
    name: str = ""  # of the shard; it seeds the orders of the turns
    rates: Rates | None = None  # measured peaks of the machine
    over_budget: bool = False
    useful_s: float = 0.0  # seconds in warm-up and samples
    round: int = 0  # of this session: an index of the rounds in its share
    reached: int = 0  # the last round that began
    visits: int = 0
    coming: Sequence[Planned] = ()  # the cases of this and of the round's later blocks
    shown: tuple[Block, int] | None = None  # block and round in which the next two were predicted
    end_s: float = 0.0  # when everything would be done, without a budget
    total: int = 0  # visits until then, or until the end of the budget
    postponed: list[Planned] | None = field(default_factory=list)  # None once nothing may wait
    left_out: dict[str, tuple[Planned, Cause]] = field(default_factory=dict)  # by predictions alone
    kept_s: float = 0.0  # of the budget, for measuring memory
    certain: Mapping[Block, Certainty] = field(default_factory=dict)  # of ratios, by the last round
    history: History = field(init=False)
    blocks: Mapping[Block, Sequence[Planned]] = field(init=False)

    def __post_init__(self) -> None:
        rounds = tuple(range(self.request.rounds))
        every = dict.fromkeys(blocks(self.plan), rounds)
        self.rounds = every if self.share is None else self.share
        self.plan = tuple(planned for planned in self.plan if planned.block in self.rounds)
        self.blocks = blocks(self.plan)
        context_bytes = find(self.request.device).context_bytes
        weighed = {key for key, part, _ in self.finished if part == Part.MEMORY}
        self.history = History(
            plan=self.plan, weighed=weighed, context_bytes=context_bytes, rates=self.rates
        )
        self.extras = schedule.extras(self.plan, self.request.batch_tokens)
        early = (sum(r < WANTED_ROUNDS for r in own) for own in self.rounds.values())
        self.wanted = max((1, *early))  # of this session's rounds

    def run(self) -> None:
        """Run round 0, then repeats, and measure memory between them."""
        if math.isnan(self.begun):
            self.begun = self.clock()
        self.recall()
        self.kept_s = MEMORY * (self.request.budget_s or 0.0)
        self.first_round([planned for planned in self.plan if not planned.refusal])
        self.measure_memories(self.kept_s if self.request.budget_s else math.inf)
        self.kept_s = 0.0
        self.repeat(range(1, self.wanted))
        waiting, self.postponed, self.round = self.postponed, None, 0
        if waiting:
            self.first_round(waiting)
        self.measure_memories(math.inf)
        self.repeat(range(self.wanted, max(map(len, self.rounds.values()), default=0)))
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
        """Measure memory where that is still to be done, cheapest first, in at most `most_s`."""
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
        extras = [planned for planned in block if planned.case.key in self.extras]
        if self.postponed is not None and self.must_wait(extras):
            self.postponed += extras
            block = [planned for planned in block if planned not in extras]
        for planned in sorted(block, key=self.history.iteration_s):
            self.left_out.pop(planned.case.key, None)
            if refusal := self.refusal(planned, admitted):
                self.leave_out(planned, Outcome.SKIPPED, refusal.reason, refusal.cause)
                if refusal.cause in PREDICTED:
                    self.left_out[planned.case.key] = planned, refusal.cause
            else:
                admitted.append(planned)
        return admitted

    def refusal(self, planned: Planned, others: Sequence[Planned]) -> Refusal | None:
        """Why a case does not run now together with `others` of its block, or None."""
        if self.is_done(planned):
            return None
        if limit := self.limit(planned):
            return limit
        anchor = self.anchor(planned.block)
        reserved_s = self.cost_s(others) + self.visits_s([anchor] if anchor else []) + self.kept_s
        cost_s = self.cost_s([planned])
        if reserved_s + cost_s > self.left_s():
            iteration_s, left_s = self.history.iteration_s(planned), self.left_s() - reserved_s
            left = f"{units.seconds(left_s)} left" if left_s >= 1 else "nothing left"
            each, total = units.seconds(iteration_s), units.seconds(cost_s)
            reason = f"({left}): predicted {each} per iteration, {total} in total"
            return Refusal(Cause.BUDGET, f"would exceed --budget {reason}")
        return None

    def limit(self, planned: Planned) -> Refusal | None:
        """Why a case cannot run whatever the budget, as far as known by now, or None."""
        if blocked := schedule.blocked(planned.case, self.history.ended):
            return blocked
        needed_bytes = self.history.needed_bytes(planned)
        if needed_bytes > self.memory_bytes:
            most, needed = units.size(self.memory_bytes), units.size(needed_bytes / schedule.MARGIN)
            reason = f"would exceed the memory limit ({most}): predicted {needed}"
            return Refusal(Cause.MEMORY_LIMIT, reason)
        visit_s, limit_s = self.visit_s(planned), self.request.case_timeout_s
        if limit_s and visit_s > limit_s:
            most, each = units.seconds(limit_s), units.seconds(self.history.iteration_s(planned))
            reason = f"({most}): predicted {each} per iteration, {units.seconds(visit_s)} per round"
            return Refusal(Cause.CASE_TIMEOUT, f"would exceed --case-timeout {reason}")
        return None

    def must_wait(self, extras: Sequence[Planned]) -> bool:
        """Whether the budget is not enough for the wanted rounds of these extras and of the rest.

        The rest are the cases that are not extra, and the extras that have run.
        """
        if all(self.is_done(planned) for planned in extras):
            return False
        rest = [p for p in self.plan if p.case.key not in self.extras and not p.refusal]
        coming = [*(p for p in rest if not self.was_timed(p)), *extras]
        repeated_s = self.visits_s([*self.history.repeatable(), *coming])
        repeats_s = (self.wanted - 1) * repeated_s
        return self.cost_s(coming) + repeats_s + self.kept_s > self.left_s()

    def repeat(self, rounds: Iterable[int]) -> None:
        """Further rounds of the cases that succeeded, until precise, as far as the budget goes."""
        for self.round in rounds:
            self.reached, self.certain = self.round, self.history.certainties()
            due = [p for p in self.history.repeatable() if self.is_due(p.block)]
            missing = [planned for planned in due if not self.is_done(planned)]
            of_block = blocks(self.affordable(missing))
            if missing and not of_block:
                break
            self.visit_all(of_block)

    def is_due(self, block: Block) -> bool:
        """Whether this round repeats a block: it has one, and a ratio is not precise yet."""
        certain, precision = self.certain.get(block), self.request.precision
        precise = certain is not None and precision is not None and certain.reaches(precision)
        return self.round < len(self.rounds[block]) and not precise

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
        room = schedule.SHARED * self.memory_bytes
        racing = [*([anchor] if anchor else []), *missing]
        for group in schedule.groups(racing, self.history.needed_bytes, room, anchor):
            self.race(processes, group)

    def anchor(self, block: Block) -> Planned | None:
        """What races again with cases not yet timed in this round; None before the first race."""
        timed = [planned for planned in self.blocks[block] if self.was_timed(planned)]
        return min(timed, key=self.history.needed_bytes, default=None)

    def race(self, processes: Round, cases: Sequence[Planned]) -> None:
        """Race cases that fit into memory together, and store their runs."""
        settings, history = self.request.settings, self.history
        together_bytes = schedule.FRAGMENTED * sum(map(history.needed_bytes, cases))
        names = {history.name(planned): planned for planned in cases}
        builds = {
            name: {
                **asdict(planned.case),
                "warmup_s": settings.warmup_s,
                "faulting_s": settings.faulting_s,
                "clock": settings.clock,
                "probed": settings.clock is Clock.CPU,
                "cold": settings.cold,
                "cuda_graphs": settings.cuda_graphs,
                "suspicious": schedule.family(planned.case) not in history.examined,
                "sparing": schedule.FRAGMENTED * history.needed_bytes(planned) > self.memory_bytes,
            }
            for name, planned in names.items()
        }
        race = Race(
            builds=builds,
            turns=lambda times: {n: schedule.turns(s, settings) for n, s in times.items()},
            limit_s=lambda name, iteration_s: self.timeout_s(names[name], iteration_s),
            left_s=self.left_s,
            rehearse=True,
            first_lap=history.next_lap(cases[0].block, self.number(cases[0])),
            end_others=together_bytes > schedule.SHARED * self.memory_bytes,
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
            self.number(planned),
            entry.failed or entry.finished,
            samples=tuple(sample._replace(lap=lap) for lap, sample in entry.laps.items()),
            elapsed_s=entry.elapsed_s,
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
        if not self.lacks_memory(planned):
            return
        name = self.history.name(planned)
        self.show(planned, f"{name}, memory")
        begun = self.clock()
        limit_s = min(self.timeout_s(planned), max(LEAST_S, self.left_s()))
        contexts = processes.alive * self.history.context_bytes
        together_bytes = contexts + self.history.needed_bytes(planned)
        crowded = together_bytes > schedule.SHARED * self.memory_bytes
        answer = processes.weigh(name, limit_s, end_others=crowded, **asdict(planned.case))
        if answer["outcome"] == "timeout" and self.left_s() <= 0:
            self.over_budget = True
            return
        run = run_of(planned, Part.MEMORY, 0, answer, elapsed_s=self.clock() - begun)
        self.store.append(run)
        self.history.learn(planned, run)

    def leave_out(
        self, planned: Planned, outcome: Outcome, reason: str, cause: Cause | None = None
    ) -> None:
        """Store why a case does not run, if its first round is in this session's share."""
        if self.has_first(planned) and not self.is_done(planned):
            answer = {"outcome": outcome, "reason": reason, "cause": cause}
            self.store.append(run_of(planned, Part.TIME, 0, answer))

    def memory_s(self, planned: Planned) -> float:
        """Predicted seconds of measuring the memory of a case."""
        wall_s, other_s = self.history.wall_s(planned), self.history.other_s(Part.MEMORY)
        return self.history.prepare_s(planned) + schedule.memory_s(wall_s, other_s)

    def visits_s(self, cases: Iterable[Planned]) -> float:
        """Predicted seconds of one visit to each case."""
        return sum(map(self.visit_s, cases))

    def visit_s(self, planned: Planned, wall_s: float = 0.0) -> float:
        """Predicted seconds of one visit to a case; `wall_s` of an iteration if measured."""
        settings, other_s = self.request.settings, self.history.other_s(Part.TIME)
        own_s = stretched_s = wall_s or self.history.wall_s(planned)
        if settings.clock is Clock.CPU and not wall_s:  # as many laps as CPU time asks for
            own_s = self.history.iteration_s(planned)
        stretch = stretched_s / own_s if own_s else 1.0
        visit_s = schedule.visit_s(own_s, settings, other_s, stretch)
        return self.history.prepare_s(planned) + visit_s

    def cost_s(self, cases: Sequence[Planned]) -> float:
        """Predicted seconds of the times that remain of round 0 for these cases."""
        return self.visits_s(planned for planned in cases if not self.is_done(planned))

    def left_s(self) -> float:
        """Seconds left of the budget; infinite without one."""
        if self.request.budget_s is None:
            return math.inf
        return self.request.budget_s - (self.clock() - self.begun)

    def timeout_s(self, planned: Planned, iteration_s: float = 0.0) -> float:
        """Seconds after which the process of a case is killed; `iteration_s` if measured."""
        usual_s, limit_s = self.visit_s(planned, iteration_s), self.request.case_timeout_s
        longest_s = max(AT_LEAST_S, OVERTIME * usual_s) + COMPILING_S * planned.compiles
        return min(longest_s, math.inf if limit_s is None else limit_s)

    def number(self, planned: Planned) -> int:
        """The number that this round has in the whole sweep."""
        return self.rounds[planned.block][self.round]

    def has_first(self, planned: Planned) -> bool:
        """Whether the first round of the case in the whole sweep is in this session's share."""
        return self.rounds[planned.block][0] == 0

    def lacks_memory(self, planned: Planned) -> bool:
        """Whether this session has to measure the memory of the case."""
        return self.has_first(planned) and planned.case.key not in self.history.weighed

    def was_timed(self, planned: Planned) -> bool:
        """Whether this round timed the case."""
        return (planned.case.key, self.number(planned)) in self.history.timed

    def is_done(self, planned: Planned) -> bool:
        """Whether an earlier session timed this round of the case."""
        return (planned.case.key, Part.TIME, self.number(planned)) in self.finished

    def processes(self) -> Round:
        """The processes of this round, not started yet."""
        return Round(self.start, self.draw(), self.clock)

    def draw(self) -> random.Random:
        """The random generator of this round's order."""
        return random.Random(f"{self.request.settings.seed}-{self.round}{self.name}")

    def show(self, planned: Planned, running: str) -> None:
        """Report what runs now; what is left is predicted once per block."""
        block, number = planned.block, self.number(planned)
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
        memory_s = self.kept_s + sum(self.memory_s(p) for p in lacking if self.lacks_memory(p))
        visits_s = self.cost_s(self.coming) + rounds * self.visits_s(repeated.values())
        needed_s = visits_s + memory_s
        self.end_s = self.clock() + needed_s
        visits = sum(not self.is_done(p) for p in self.coming) + rounds * len(repeated)
        fitting = min(1.0, self.left_s() / needed_s) if needed_s else 1.0
        self.total = self.visits + round(fitting * visits)


def run_of(planned: Planned, part: Part, round_: int, answer: Answer, **more: Any) -> Run:
    """The run of a case, from what a process answered; it failed if that would be refused later."""
    run = Run(
        case=planned.case.key,
        part=part,
        round=round_,
        outcome=Outcome(answer["outcome"]),
        cause=answer.get("cause"),
        reason=answer.get("reason", ""),
        values=answer.get("values", {}),
        notes=answer.get("notes", {}),
        **more,
    )
    if refused := wrong(run):
        failed = run_of(planned, part, round_, impossible(refused))
        return replace(failed, elapsed_s=run.elapsed_s)
    return run
