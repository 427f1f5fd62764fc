"""The processes of a check: they count cases on both sides, then race them in pairs.

No mechanism runs in this process; it sends requests to the sides and waits.
"""

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from msgspec import convert

from attnbench.errors import CannotRun, OverBudget
from attnbench.gate import rule
from attnbench.gate.cases import (
    AGAIN,
    BASE,
    SIDES,
    CheckedCase,
    CheckPlan,
    Counted,
    Failed,
    TreeRace,
    raced,
    tree_round,
)
from attnbench.metrics import TIME
from attnbench.records import Outcome
from attnbench.run.pool import Pool
from attnbench.run.process import Process
from attnbench.run.race import Round

COUNT_TIMEOUT_S = 300.0
MARGIN = 1.5  # of a suggested budget over the expected time: the load of a machine varies
STEP_S = 10  # to a multiple of which it is rounded up

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Runner:
    """The processes that measure; `observe` is called with what is running now."""

    server: Pool
    observe: Callable[[str], None] = lambda _: None

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

    def loaded(self, side: str, tree: Path, **about: Any) -> Process:
        """A process on a side. Raises `CannotRun` if its package does not load."""
        worker = self.server.process(tree, **about)
        if worker.started["outcome"] != Outcome.OK:
            worker.end()
            raise CannotRun(f"{side} cannot be measured: {worker.started['reason']}")
        return worker

    def on_sides(self, trees: Mapping[str, Path], ask: Callable[[str, Path], T]) -> dict[str, T]:
        """What `ask` gives for each side and its tree, asked at the same time."""
        with ThreadPoolExecutor(len(trees)) as pool:
            try:
                return dict(zip(trees, pool.map(ask, trees, trees.values()), strict=True))
            except KeyboardInterrupt:
                self.server.close()  # or the pool would wait for the remaining answers
                raise


def count(cases: Sequence[CheckedCase], runner: Runner, trees: Mapping[str, Path]) -> None:
    """Count every case on every side, and once more where its process was killed."""
    runner.observe("counting")
    every = runner.on_sides(trees, lambda side, tree: count_side(cases, runner, side, tree))
    for side, counted in every.items():
        for case, one in zip(cases, counted, strict=True):
            case.counted[side] = one
    # one side after the other, since both may need more memory than there is
    for case in cases:
        for side, one in case.counted.items():
            again = one
            if one.killed:
                with suppress(OverBudget):
                    [again] = count_side([case], runner, side, trees[side])
            case.counted[side] = again.blamed(side)


def count_side(
    cases: Sequence[CheckedCase], runner: Runner, side: str, tree: Path
) -> list[Counted]:
    """The counts of every case on one side; a process that a case spoils is replaced."""
    answers: list[Counted] = []
    worker: Process | None = None
    try:
        for case in cases:
            if worker is None or not worker.alive:
                worker = runner.loaded(side, tree, measures_memory=True)
            asked = {"do": "measure_memory", "checked": True, **case.build_request()}
            answer = worker.ask(COUNT_TIMEOUT_S, **asked)
            answers.append(convert(answer, Counted))
            if answer.get("needs_new_process", True):
                worker.end()
    except OverBudget:
        if not answers:
            raise
        late = Counted(outcome=Outcome.SKIPPED, reason="not counted when --budget ended")
        answers += [late] * (len(cases) - len(answers))
    finally:
        if worker is not None:
            worker.end()
    return answers


def measure(
    plan: CheckPlan, cases: Sequence[CheckedCase], runner: Runner, trees: Mapping[str, Path]
) -> "Looks":
    """Count every case, and time those that are due and that both sides can run.

    Cases of further forms are left out that run on no side, or are of the default form.
    """
    looks = Looks(plan, runner, trees)
    if plan.times:
        runner.server.of_layout(layout(0, 1))  # loads torch while cases are counted
    count(cases, runner, trees)
    defaults = {case.label for case in cases if not case.further}
    for case in cases:
        unsupported = {c.outcome for c in case.counted.values()} == {Outcome.UNSUPPORTED}
        if not case.further or not (unsupported or case.label in defaults):
            case.due = plan.times and case.ran
            looks.cases.append(case)
    if looks.due:
        looks.take()
    return looks


class Looks:
    """The first and second looks at the times of `cases` of two trees, within the budget."""

    def __init__(self, plan: CheckPlan, runner: Runner, trees: Mapping[str, Path]) -> None:
        self.plan, self.runner, self.server = plan, runner, runner.server
        self.cases: list[CheckedCase] = []
        self.trees = {**trees, AGAIN: trees[BASE]}
        self.draw, self.begun = random.Random(plan.seed), time.monotonic()
        self.expected_s = self.took_s = 0.0  # of all visits to single cases so far

    @property
    def due(self) -> list[CheckedCase]:
        """The cases that are to be timed and can be."""
        return [case for case in self.cases if case.due and not case.failed]

    def take(self) -> None:
        """Look at every case, as long as the budget lasts, and twice at what is doubtful.

        What is suspected is confirmed before those are looked at that there was no time for. A
        first look is cut short where a second one of half the pairs would not fit.
        """
        waiting = self.due
        with suppress(OverBudget):
            while waiting:
                visited = self.look(waiting, 0)
                self.look(self.doubtful(visited, rule.suspected), 1)
                waiting = [c for c in waiting if c not in visited and not c.failed]
            self.look(self.doubtful(self.due, lambda *found: not rule.settled(*found)), 1)

    def look(self, cases: list[CheckedCase], stage: int) -> list[CheckedCase]:
        """Visit those of the cases that fit into the budget with fresh processes; return these."""
        pairs, least = self.plan.looks[stage], self.plan.least
        reserved = 0 if stage else least[1]
        for pair in (0, 1) if cases else ():  # both servers load torch at the same time
            self.server.of_layout(layout(stage, pair))
        for pair in range(pairs):
            if not stage:
                cases = self.affordable(cases)
            is_enough = pair >= least[stage] and not self.fits(cases, 1 + reserved)
            if is_enough or not cases or not self.fits(cases, 1):
                break
            doing = "confirming" if stage else "comparing"
            self.runner.observe(f"{doing}, pair {pair + 1} of {pairs}")
            self.visit(cases, stage, pair)
        return [case for case in cases if not case.failed]

    def affordable(self, cases: Sequence[CheckedCase]) -> list[CheckedCase]:
        """The cases for which the budget lasts for both looks, cut short; at least the first."""
        left_s, fitting = self.server.left_s, list[CheckedCase]()
        for case in cases:
            visits = max(0, self.plan.least[0] - len(case.stages[0])) + self.plan.least[1]
            cost_s = self.cost_s([case], visits)
            if not case.failed and (cost_s <= left_s or not fitting):
                left_s -= cost_s
                fitting.append(case)
        return fitting

    def fits(self, cases: Sequence[CheckedCase], visits: int) -> bool:
        """Whether so many visits to the cases fit into the budget."""
        return self.cost_s(cases, visits) <= self.server.left_s

    def cost_s(self, cases: Sequence[CheckedCase], visits: int) -> float:
        """Expected seconds of so many visits to the cases, if the machine stays as busy."""
        slowdown = self.took_s / self.expected_s if self.expected_s else 1.0
        expected_s = (case.race.cost_s if case.race else self.plan.visit_s for case in cases)
        return slowdown * visits * sum(expected_s)

    @property
    def enough(self) -> str:
        """The option that gives enough time to look at every case twice, here and now."""
        other_s = time.monotonic() - self.begun - self.took_s
        needed_s = other_s + MARGIN * self.cost_s(self.due, sum(self.plan.looks))
        more_s = max(needed_s, MARGIN * (self.plan.budget_s or 0.0))
        return f"--budget {STEP_S * math.ceil(more_s / STEP_S)}s"

    def visit(self, cases: Sequence[CheckedCase], stage: int, pair: int) -> None:
        """One visit of fresh processes to every case, in random order."""
        server = self.server.of_layout(layout(stage, pair))
        server.wait()
        with tree_round(server, self.trees, self.draw) as processes:
            for case in self.draw.sample(cases, len(cases)):
                if case.failed or case not in (cases if stage else self.affordable(cases)):
                    continue
                self.runner.observe(f"timing {case.label}")
                try:
                    case.race = race = case.race or self.sized(case, processes)
                    begun = time.monotonic()
                    try:
                        case.stages[stage].append(race.run(processes))
                    finally:
                        self.took_s += time.monotonic() - begun
                        self.expected_s += race.cost_s
                except Failed as failed:
                    case.failed = failed

    def sized(self, case: CheckedCase, processes: Round) -> TreeRace:
        """The race of a case, with a batch such that iterations last as planned."""
        once = TreeRace(builds={BASE: case.build_request()})
        batch_s = min(once.run(processes)[TIME][BASE])
        if case.workload is not None:
            case.batch = self.plan.batch_for(case.workload, batch_s)
            batch_s *= case.batch / case.workload.batch
        iterations = max(1, round(self.plan.iteration_s / batch_s))
        return TreeRace(
            builds=dict.fromkeys(SIDES, case.build_request(case.batch)),
            rounds=self.plan.rounds_for(iterations * batch_s),
            iterations=iterations,
            iteration_s=batch_s,
        )

    def doubtful(
        self, cases: list[CheckedCase], doubt: Callable[[rule.Evidence, float], bool]
    ) -> list[CheckedCase]:
        """The cases that leave `doubt` after the first look, and had no second one."""
        found = (case for case, evidence in raced(cases) if doubt(evidence, self.plan.threshold))
        return [case for case in dict.fromkeys(found) if case.stages[0] and not case.stages[1]]


def layout(stage: int, pair: int) -> int:
    """The memory layout of a visit: two take turns in either look, since one favours some code."""
    return 2 * stage + pair % 2
