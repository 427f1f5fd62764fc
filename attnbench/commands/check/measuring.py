"""The processes of a check: they count cases on both sides, then race them in pairs.

No mechanism runs in this process; it sends requests to the sides and waits.
"""

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from attnbench.commands.check.cases import (
    AGAIN,
    BASE,
    HEAD,
    SIDES,
    START_S,
    WARM,
    CheckedCase,
    CheckPlan,
    Counted,
    Loaded,
    Trees,
    Visit,
)
from attnbench.commands.check.imports import Imports
from attnbench.commands.check.pairs import Allotment, Need, usual_spread
from attnbench.commands.check.rule import Statistic
from attnbench.devices.cgroups import Stops, stops
from attnbench.errors import CannotRun, OverBudget
from attnbench.records import Clock, Outcome, messages
from attnbench.running.pool import Pool
from attnbench.running.process import Process
from attnbench.running.race import Entry, Round, Turns

COUNT_TIMEOUT_S = 300.0
LEAST_TIMEOUT_S = 60.0  # of a visit
PATIENCE = 50.0  # times its expected time
MARGIN = 1.2  # of the time that undecided cases are expected to need: others need more than that
WARMUP_S = 0.05  # of a case, at most
FAULTING_S = 0.25  # of it, at most, while pages fault
FAR = 4.0  # times base, from which head decides how long samples are


@dataclass(frozen=True, kw_only=True)
class Runner:
    """The processes that measure; `observe` is called with what is running now.

    `imports` says where those of a tree find its code; by default in the tree and its `src`.
    `watched` are files of installed packages of which a process tells that it loaded them. With
    `holds`, those of a race are forked from others that have done what all of them need.
    """

    server: Pool
    observe: Callable[[str], None] = lambda _: None
    imports: Imports | None = None
    holds: bool = False
    watched: tuple[str, ...] = ()

    @contextmanager
    def within(self, budget_s: float | None) -> Iterator[None]:
        """End every wait inside the block when the budget ends.

        Raises `CannotRun` where the budget ends before there is anything to report.
        """
        end_s = math.inf if budget_s is None else time.monotonic() + budget_s
        try:
            with self.server.until(end_s):
                yield
        except OverBudget as error:
            raise CannotRun(f"--budget of {budget_s:.0f} s {error}; raise it") from error

    def left_s(self) -> float:
        """Seconds until the budget ends."""
        return self.server.left_s

    def process(self, tree: Path, server: Pool | None = None, **about: Any) -> Process:
        """A fresh process of a tree, of the given pool or of `server`."""
        return (server or self.server).process(tree, **self.load_fields(tree), **about)

    def load_fields(self, tree: Path) -> dict[str, Any]:
        """What the processes of a tree are told of its imports."""
        return self.imports.of(tree) if self.imports else {}

    def loaded_process(self, side: str, tree: Path, **about: Any) -> Process:
        """A process on a side. Raises `CannotRun` if its package does not load."""
        worker = self.process(tree, **about)
        if worker.refused is not None:
            worker.end()
            raise CannotRun(f"{side} cannot be measured: {worker.refused.reason}")
        return worker


class Failed(Exception):
    """One side did not run in a race."""

    def __init__(self, side: str, counted: Counted) -> None:
        self.side = side
        self.counted = counted
        super().__init__(f"{counted.outcome} on {side}: {counted.reason}")


def count(
    cases: Sequence[CheckedCase], runner: Runner, trees: Trees, results: bool = False
) -> None:
    """Count every case on every side, in one process of each; what is killed, once more.

    A process that a case spoils is replaced. Raises `OverBudget` if no case was counted.

    cases: what is counted is kept in them; outputs of two sides are compared.
    runner: of the measuring processes.
    trees: of the sides.
    results: whether what functions return is compared too.
    """
    workers: dict[str, Process] = {}
    uncounted = Counted(outcome=Outcome.SKIPPED, reason="not counted when --budget ended")
    for case in cases:
        case.counted = dict.fromkeys(trees, uncounted)
    with ExitStack() as stack:
        for case, side in product(cases, trees):
            runner.observe(f"counting {case.label}")
            question = messages.MeasureMemory(**case.build_request(), checked=True)
            for _ in range(2):
                try:
                    if side not in workers or not workers[side].alive:
                        workers[side] = runner.loaded_process(
                            side, trees[side], measures_memory=True
                        )
                        stack.callback(workers[side].end)
                    answer = workers[side].ask(question, COUNT_TIMEOUT_S)
                    case.loaded[side] = files_of(workers[side], runner.watched)
                    compares = len(trees) > 1 and (results or case.workload is not None)
                    if compares and not isinstance(answer, messages.Failure):
                        compare_outputs(case, side, workers[side], runner)
                except OverBudget:
                    if case is cases[0]:
                        raise
                    return
                if isinstance(answer, messages.Failure) or answer.needs_new_process:
                    workers[side].end()
                case.counted[side] = counted = Counted.of(answer)
                if not counted.was_killed:
                    break
            case.counted[side] = counted.excused_if_killed(side)
            if side == HEAD and BASE in trees:
                with suppress(OverBudget):
                    compare_outputs_again(case, runner, trees[BASE])


def files_of(worker: Process, watched: tuple[str, ...] = ()) -> Loaded:
    """What a process has loaded; nothing where it has ended, or its code cannot tell."""
    if not worker.alive:
        return Loaded()
    answer = worker.ask(messages.Files(watched=watched), COUNT_TIMEOUT_S)
    if isinstance(answer, messages.Failure):
        return Loaded()
    return Loaded(modules=answer.modules, libraries=answer.libraries)


def compare_outputs(case: CheckedCase, side: str, worker: Process, runner: Runner) -> None:
    """Compare what the case computes on one input with what it does on base, if it did there.

    case: it keeps the answer.
    side: of the worker.
    worker: a process of that side.
    runner: of all processes; its folder keeps what base computed.
    """
    if side == BASE or case.comparison(BASE):
        question = outputs_question(case, runner, keeps=side == BASE)
        case.outputs[side] = worker.ask(question, COUNT_TIMEOUT_S)


def outputs_question(case: CheckedCase, runner: Runner, *, keeps: bool) -> messages.Outputs:
    """The question about what a case computes: to keep it, or to compare it with what is kept."""
    path = str(runner.server.folder / "outputs")
    return messages.Outputs(**case.build_request(), path=path, keeps=keeps)


def compare_outputs_again(case: CheckedCase, runner: Runner, tree: Path) -> None:
    """Call a function of base once more where head's returns something else, in a new process."""
    head = case.comparison(HEAD)
    if case.workload is None and head and head.differs:
        with runner.loaded_process(BASE, tree) as worker:
            worker.ask(messages.MeasureMemory(**case.build_request()), COUNT_TIMEOUT_S)
            answer = worker.ask(outputs_question(case, runner, keeps=False), COUNT_TIMEOUT_S)
        case.outputs[AGAIN] = answer


@dataclass(frozen=True, kw_only=True)
class TreeRace:
    """What each side builds, and how a sample of it is taken."""

    builds: Mapping[str, messages.Build]  # by side
    rounds: int = 2
    iterations: int = 1  # per sample; a round has two samples of each side
    iteration_s: float = 0.0  # expected
    waiting: set[str] = field(default_factory=set)  # sides of which some time was no CPU time

    @property
    def cost_s(self) -> float:
        """Expected seconds of one visit."""
        iterations = 2 * self.rounds * self.iterations + WARM
        return len(self.builds) * (START_S + iterations * self.iteration_s)

    def run(self, processes: Round) -> Visit:
        """The samples of every side. Raises `Failed`."""
        turns = Turns(pairs=self.rounds, iterations=self.iterations)
        entries = processes.race(
            self.builds,
            lambda times: dict.fromkeys(times, turns),
            lambda side, wall_s: max(LEAST_TIMEOUT_S, PATIENCE * self.cost_s),
        )
        for side, entry in entries.items():
            if entry.failure is not None:
                raise Failed(side, Counted.of(entry.failure))
            if has_waited(entry):
                self.waiting.add(side)
        return {side: tuple(s.seconds for s in e.laps.values()) for side, e in entries.items()}


def build_of(case: CheckedCase, batch: int | None = None) -> messages.Build:
    """The question that makes a side build a case, with another batch if one is given."""
    return messages.Build(**case.build_request(batch), warmup_s=WARMUP_S, faulting_s=FAULTING_S)


def has_waited(entry: Entry) -> bool:
    """Whether more than CPU time counts in most laps, since the case sleeps or waits in them."""
    laps = [lap for lap in entry.laps.values() if lap.device_s is None and lap.clock == Clock.CPU]
    longer = [lap for lap in laps if lap.seconds > lap.cpu_s / lap.iterations]
    return 2 * len(longer) > len(laps)


def layout(stage: int, pair: int) -> int:
    """The memory layout of a visit: two take turns in either look, since one favours some code."""
    return 2 * stage + pair % 2


class Looks:
    """The first and second looks at the times of `cases` of two trees, within the budget."""

    def __init__(
        self,
        plan: CheckPlan,
        runner: Runner,
        trees: Trees,
        apart: Callable[[CheckedCase], str] = lambda case: "",
    ) -> None:
        self.plan, self.runner, self.server = plan, runner, runner.server
        self.apart = apart  # why the sides of a case cannot be compared
        self.cases: list[CheckedCase] = []
        self.races: dict[CheckedCase, TreeRace] = {}
        self.needs: dict[CheckedCase, Need] = {}
        self.spreads: dict[Statistic, float] = {}  # spread of the pairs of all cases
        self.trees = {**trees, AGAIN: trees[BASE]}
        self.draw = random.Random(0)
        self.begun = time.monotonic()
        self.stopped_before = stops()  # by a CPU quota
        self.expected_s = self.took_s = 0.0  # of all visits so far
        self.passed_s = 0.0  # of the budget, when the last visit ended

    @property
    def timed_cases(self) -> list[CheckedCase]:
        """The cases that are to be timed and can be."""
        return [case for case in self.cases if self.plan.times and case.ran]

    def take(self, cases: Sequence[CheckedCase]) -> None:
        """Count the cases; then time one pair of each, and go on until each has its verdict.

        Where there is no time for a pair of each, those that have one are spread over all. A form
        that is named beside the default that it is counts once.
        """
        if self.plan.times:
            self.server.of_layout(layout(0, 1))  # loads torch while cases are counted
        sides = {side: self.trees[side] for side in (BASE, HEAD)}
        count(cases, self.runner, sides, self.plan.results)
        for case in cases:
            case.apart = self.apart(case)
        self.cases += {case.label: case for case in cases}.values()
        self.plan = self.plan.fitted_to_time(len(self.timed_cases), self.server.left_s)
        self.allotment = Allotment.for_pairs(self.plan, math.inf)
        with suppress(OverBudget):
            for case in spread(self.timed_cases):
                if self.plan.looks[0] and self.cost_s([case], 1) <= self.server.left_s:
                    self.time_next_pair(case, 0)
            self.decide()
        self.weigh_all()
        self.passed_s = max(0.0, (self.plan.budget_s or 0.0) - self.server.left_s)

    def decide(self) -> None:
        """Time pairs of what needs them until every case has its verdict or the budget ends.

        What has probably changed comes first, the largest change before others, then what needs the
        least time.
        """
        pairs = self.server.left_s / (self.cost_s(self.timed_cases, 1) or 1.0)
        self.allotment = Allotment.for_pairs(self.plan, pairs)
        self.weigh_all()
        waiting = [case for case in self.timed_cases if not self.needs[case].is_met]
        while fitting := [case for case in waiting if self.has_time_for(case)]:
            case = min(fitting, key=self.order_key)
            self.time_next_pair(case, self.needs[case].look)
            self.needs[case] = self.allotment.need(case, self.spreads)
            if self.needs[case].is_met or not case.ran:
                waiting.remove(case)

    def weigh_all(self) -> None:
        """Work out what every case needs, by how noisy all of them are."""
        self.spreads = usual_spread([case.views(self.plan.threshold) for case in self.timed_cases])
        for case in self.timed_cases:
            self.needs[case] = self.allotment.need(case, self.spreads)

    def has_time_for(self, case: CheckedCase) -> bool:
        """Whether there is time for a pair of a case."""
        return self.cost_s([case], 1) <= self.server.left_s

    def order_key(self, case: CheckedCase) -> tuple[bool, float]:
        """A key by which the next case to be timed is the least one."""
        need = self.needs[case]
        return not need.changed, -need.size if need.changed else self.cost_s([case], need.pairs)

    def time_next_pair(self, case: CheckedCase, stage: int) -> None:
        """Time the next pair of a look."""
        number = len(case.looks[stage])
        doing = "confirming" if stage and self.needs[case].changed else "comparing"
        self.runner.observe(f"{doing} {case.label}, pair {len(case.visits) + 1}")
        self.visit(case, stage, number)

    def cost_s(self, cases: Sequence[CheckedCase], visits: float) -> float:
        """Expected seconds of this number of visits to the cases, if the machine stays as busy."""
        costs = (self.races[c].cost_s if c in self.races else self.plan.visit_s for c in cases)
        return self.slowdown * visits * sum(costs)

    @property
    def slowdown(self) -> float:
        """How many times as long visits took as on a quiet machine; 1 before the first one."""
        return self.took_s / self.expected_s if self.expected_s else 1.0

    @property
    def quota_stops(self) -> Stops:
        """How often a CPU quota has stopped the processes of this check."""
        return stops() - self.stopped_before

    @property
    def undecided_cases(self) -> list[CheckedCase]:
        """The cases that have no verdict and would probably get one with more time."""
        return [
            case
            for case in self.timed_cases
            if not self.needs[case].is_met and math.isfinite(self.needs[case].pairs)
        ]

    @property
    def enough_s(self) -> float:
        """About the seconds of a budget in which this check would decide all it can, here.

        What has passed of the budget, and what undecided cases need by how noisy they are, if the
        machine stays as busy.
        """
        more_s = sum(self.cost_s([case], self.needs[case].pairs) for case in self.undecided_cases)
        return self.plan.spent_s + self.passed_s + MARGIN * more_s

    def visit(self, case: CheckedCase, stage: int, pair: int) -> None:
        """One visit of fresh processes to a case."""
        server = self.server.of_layout(layout(stage, pair))
        server.wait()
        if self.runner.holds:
            for side in SIDES:
                tree = self.trees[side]
                server.hold(side, tree, **self.runner.load_fields(tree))
        with Round(partial(self.start_process, server), self.draw) as processes:
            try:
                if case not in self.races:
                    self.races[case] = self.sized_race(case, processes)
                race = self.races[case]
                begun = time.monotonic()
                try:
                    case.looks[stage].append(race.run(processes))
                    case.waits |= bool(race.waiting)
                finally:
                    self.took_s += time.monotonic() - begun
                    self.expected_s += race.cost_s
            except Failed as failed:
                side = HEAD if failed.side == HEAD else BASE
                case.counted[side] = failed.counted.excused_if_killed(side)

    def start_process(self, server: Pool, side: str) -> Process:
        """A process of a side, of this pool."""
        tree = self.trees[side]
        if self.runner.holds:
            return server.process_of(side, tree, **self.runner.load_fields(tree))
        return self.runner.process(tree, server)

    def sized_race(self, case: CheckedCase, processes: Round) -> TreeRace:
        """The race of a case, with a batch such that iterations last as planned."""
        trial_race = TreeRace(builds=dict.fromkeys((BASE, HEAD), build_of(case)))
        trial_samples = trial_race.run(processes)
        base_s = min(trial_samples[BASE])
        head_s = min(trial_samples[HEAD])
        # where head takes far longer, a sample of it would else take as many times as long
        batch_s = head_s if head_s > FAR * base_s else base_s
        if case.workload is not None:
            case.batch = self.plan.batch_for(case.workload, batch_s)
            batch_s *= case.batch / case.workload.batch
        iterations = max(1, round(self.plan.iteration_s / batch_s))
        # a busy machine gives fewer samples, so that every case has its pairs
        plan = self.plan.fitted_to_time(len(self.timed_cases), self.server.left_s / self.slowdown)
        return TreeRace(
            builds=dict.fromkeys(SIDES, build_of(case, case.batch)),
            rounds=plan.rounds_for(iterations * batch_s),
            iterations=iterations,
            iteration_s=batch_s,
        )


def spread(cases: Sequence[CheckedCase]) -> list[CheckedCase]:
    """The cases in an order of which each beginning is spread evenly over all of them."""
    bits = len(cases).bit_length()
    reversed_bits = [int(f"{number:0{bits}b}"[::-1], 2) for number in range(len(cases))]
    order = sorted(range(len(cases)), key=reversed_bits.__getitem__)
    return [cases[number] for number in order]
