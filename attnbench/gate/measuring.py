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

from attnbench.devices.cgroups import cores
from attnbench.devices.host import load
from attnbench.errors import CannotRun, OverBudget
from attnbench.gate import rule
from attnbench.gate.cases import (
    CheckedCase,
    CheckPlan,
    Counted,
    FunctionCase,
    families,
    unmeasured,
)
from attnbench.gate.pairs import AGAIN, BASE, HEAD, Failed, TreeRace, tree_round
from attnbench.metrics import TIME
from attnbench.records import Outcome
from attnbench.run.pool import Pool
from attnbench.run.process import Process
from attnbench.run.race import Round
from attnbench.units import many

COUNT_TIMEOUT_S = 300.0
T = TypeVar("T")

MARGIN = 1.5  # of a suggested budget over the expected time: the load of a machine varies
STEP_S = 10  # to a multiple of which it is rounded up


@dataclass(frozen=True, kw_only=True)
class Runner:
    """The processes that measure, and where progress is reported.

    `observe` is called with what is running now, `announce` with what deserves a separate line.
    """

    server: Pool
    observe: Callable[[str], None] = lambda _: None
    announce: Callable[[str], None] = lambda _: None

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


def loaded(server: Pool, side: str, tree: Path, **about: Any) -> Process:
    """A process on a side. Raises `CannotRun` if its package does not load."""
    worker = server.process(tree, **about)
    if worker.started["outcome"] != Outcome.OK:
        worker.end()
        raise CannotRun(f"{side} cannot be measured: {worker.started['reason']}")
    return worker


def crowding() -> float:
    """About how much longer a process takes than alone, by the load of the machine."""
    return max(1.0, (1.0 + (load() or 0.0)) / cores())


def on_sides(server: Pool, sides: Sequence[str], ask: Callable[[str], T]) -> dict[str, T]:
    """What `ask` gives for each side, asked at the same time."""
    with ThreadPoolExecutor(len(sides)) as pool:
        try:
            return dict(zip(sides, pool.map(ask, sides), strict=True))
        except KeyboardInterrupt:
            server.close()  # or the pool would wait for the remaining answers
            raise


class CheckSession:
    """One check of `cases` between `trees`: base and head, or head alone."""

    def __init__(
        self, plan: CheckPlan, cases: list[CheckedCase], runner: Runner, trees: Mapping[str, Path]
    ) -> None:
        self.plan, self.cases = plan, cases
        self.server, self.observe, self.announce = runner.server, runner.observe, runner.announce
        self.trees = {**trees, AGAIN: trees.get(BASE, trees[HEAD])}
        self.draw = random.Random(plan.seed)
        self.begun = time.monotonic()
        self.expected_s = self.took_s = 0.0  # of all visits to single cases so far

    @property
    def due(self) -> list[CheckedCase]:
        """The cases that are to be timed and can be."""
        return [case for case in self.cases if case.due and not case.failed]

    def race(self) -> None:
        """Count every case, race those to be timed, and race the doubtful ones again."""
        if self.plan.times:
            self.server.of_layout(layout(0, 1))  # loads torch while cases are counted
        self.count()
        self.cases = [case for case in self.cases if not self.is_needless(case)]
        for case in self.cases:
            case.due = self.plan.times and case.compared.timed and case.ran
        if self.due:
            with suppress(OverBudget):
                self.race_due()

    def race_due(self) -> None:
        """Race the cases that are due. Raises `OverBudget`."""
        self.size()
        waiting = self.due
        while waiting := self.race_and_confirm(waiting):
            pass
        self.look(self.doubtful(self.due, lambda *found: not rule.settled(*found)), 1)

    def race_and_confirm(self, cases: list[CheckedCase]) -> list[CheckedCase]:
        """Look at as many cases as there is time for, twice at suspects; return those that wait.

        A first look is cut short where a second one of half the pairs would not fit.
        """
        visited = self.look(cases, 0)
        self.look(self.doubtful(visited, rule.suspected), 1)
        return [case for case in self.due if case in cases and case not in visited]

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
            self.observe(f"{'confirming' if stage else 'comparing'}, pair {pair + 1} of {pairs}")
            is_first = not self.took_s
            self.visit(cases, stage, pair)
            if is_first:
                self.announce(self.forecast())
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

    def forecast(self) -> str:
        """How long the cases take, told once they have been visited."""
        first_s = self.cost_s(self.due, self.plan.pairs)
        both_s = self.cost_s(self.due, sum(self.plan.looks))
        left = f"; {left_s:.0f} s are left" if (left_s := self.server.left_s) < both_s else ""
        return (
            f"timing {many(len(self.due), 'case')}: about {first_s:.0f} s, or {both_s:.0f} s if"
            f" every one has to be confirmed{left}"
        )

    @property
    def enough(self) -> str:
        """The option that gives enough time to look at every case twice, here and now."""
        other_s = time.monotonic() - self.begun - self.took_s
        needed_s = other_s + MARGIN * self.cost_s(self.due, sum(self.plan.looks))
        more_s = max(needed_s, MARGIN * (self.plan.budget_s or 0.0))
        return f"--budget {STEP_S * math.ceil(more_s / STEP_S)}s"

    def is_needless(self, case: CheckedCase) -> bool:
        """Whether a further form runs on no side, or is the default, which is checked anyway."""
        unsupported = {c.outcome for c in case.counted.values()} == {Outcome.UNSUPPORTED}
        defaults = {other.label for other in self.cases if not other.compared.further}
        return case.compared.further and (unsupported or case.label in defaults)

    def count(self) -> None:
        """Count every case on every side, those whose process was killed once more."""
        self.observe("counting")
        sides = [side for side in self.trees if side != AGAIN]
        first = on_sides(self.server, sides, lambda side: self.count_side(side, self.cases))
        for case, *counted in zip(self.cases, *first.values(), strict=True):
            case.counted |= zip(sides, counted, strict=True)
        # one side after the other, since both may need more memory than there is
        for case in [case for case in self.cases if any(c.killed for c in case.counted.values())]:
            again = dict[str, Counted]()
            with suppress(OverBudget):
                again |= {side: self.count_side(side, [case])[0] for side in sides}
            case.counted |= settled(case.counted, again)

    def count_side(self, side: str, cases: Sequence[CheckedCase]) -> list[Counted]:
        """The counts of every case on one side; a process that a case spoils is replaced."""
        answers: list[Counted] = []
        worker: Process | None = None
        try:
            for case in cases:
                if worker is None or not worker.alive:
                    tree = self.trees[side]
                    worker = loaded(self.server, side, tree, measures_memory=True)
                asked = {"do": "measure_memory", "checked": True, **case.build_request(side)}
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

    def size(self) -> None:
        """Set the batches of the cases that are due, such that iterations last as planned."""
        with tree_round(self.server, self.trees, self.draw) as processes:
            for case in self.due:
                self.observe(f"sizing {case.label}")
                while not (case.race or case.failed):
                    try:
                        self.size_one(case, processes)
                    except Failed as failed:
                        case.fail(failed)

    def size_one(self, case: CheckedCase, processes: Round) -> None:
        race = TreeRace(builds={BASE: case.build_request(BASE)})
        took_s = min(race.run(processes)[TIME][BASE])
        batch = case.workload.batch
        if not isinstance(case, FunctionCase):
            batch = case.batch = self.plan.batch_for(case.workload, took_s)
        batch_s = took_s * batch / case.workload.batch
        iterations = max(1, round(self.plan.iteration_s / batch_s))
        sides = (BASE, HEAD, AGAIN)
        case.race = TreeRace(
            builds={side: case.build_request(side, batch) for side in sides},
            rounds=self.plan.rounds_for(len(sides), iterations * batch_s),
            iterations=iterations,
            iteration_s=batch_s,
        )

    def visit(self, cases: Sequence[CheckedCase], stage: int, pair: int) -> None:
        """One visit of fresh processes to every case, in random order."""
        server = self.server.of_layout(layout(stage, pair))
        server.wait()
        with tree_round(server, self.trees, self.draw) as processes:
            for case in self.draw.sample(cases, len(cases)):
                fitting = cases if stage else self.affordable(cases)
                if case.race is None or case.failed or case not in fitting:
                    continue
                self.observe(f"timing {case.label}")
                begun = time.monotonic()
                try:
                    case.stages[stage].append(case.race.run(processes))
                except Failed as failed:
                    case.fail(failed)
                finally:
                    self.took_s += time.monotonic() - begun
                    self.expected_s += case.race.cost_s

    def doubtful(
        self, cases: list[CheckedCase], doubt: Callable[[rule.Evidence, float], bool]
    ) -> list[CheckedCase]:
        """The cases that leave `doubt` after the first look, and had no second one."""
        unique = {
            id(case): case
            for members, evidence in families(cases)
            if doubt(evidence, self.plan.threshold)
            for case in members
        }
        return [case for case in unique.values() if case.stages[0] and not case.stages[1]]


def settled(first: Mapping[str, Counted], again: Mapping[str, Counted]) -> dict[str, Counted]:
    """The counts by side of a case of which a process was killed, after both were counted again.

    A side that is killed twice while the other runs twice is at fault; otherwise what is killed,
    or was and could not be counted again, could not be measured.
    """

    def of(side: str) -> Counted:
        last = again.get(side, first[side])
        others = [counts[other] for counts in (first, again) for other in counts if other != side]
        at_fault = first[side].killed and len(others) == 2 and all(one.ran for one in others)
        if not last.killed or at_fault:
            return last
        return unmeasured(side, last.reason)

    return {side: of(side) for side in first}


def layout(stage: int, pair: int) -> int:
    """The memory layout of a visit: two take turns in either look, since one favours some code."""
    return 2 * stage + pair % 2
