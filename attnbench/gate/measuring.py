"""The processes of a check: they count cases on both sides, then race them in pairs.

No mechanism runs in this process; it sends requests to the sides and waits.
"""

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from msgspec import convert

from attnbench.errors import CannotRun
from attnbench.gate import rule
from attnbench.gate.cases import CheckedCase, CheckPlan, Counted, families
from attnbench.metrics import TIME
from attnbench.records import Cause, Fingerprint, Outcome
from attnbench.run.pairs import AGAIN, BASE, HEAD, Failed, TreeRace, tree_round
from attnbench.run.processes import ServerHandle
from attnbench.run.race import Round
from attnbench.run.workers import OverBudget, WorkerHandle
from attnbench.units import many

COUNT_TIMEOUT_S = 300.0
T = TypeVar("T")

LAYOUT = 1  # memory layout of the processes that confirm; the others have 0
MARGIN = 1.2  # of a suggested budget over the expected time


@dataclass(frozen=True, kw_only=True)
class Runner:
    """The processes that measure, and where progress is reported.

    `machine` gives the fingerprint of this machine, once torch is loaded. `observe` is called with
    what is running now, `announce` with what deserves a separate line.
    """

    server: ServerHandle
    machine: Callable[[], Fingerprint]
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


def loaded(server: ServerHandle, side: str, tree: Path, **about: Any) -> WorkerHandle:
    """A process on a side. Raises `CannotRun` if its package does not load."""
    worker = server.worker(tree, **about)
    if worker.started["outcome"] != Outcome.OK:
        worker.end()
        raise CannotRun(f"{side} cannot be measured: {worker.started['reason']}")
    return worker


def on_sides(server: ServerHandle, sides: Sequence[str], ask: Callable[[str], T]) -> dict[str, T]:
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
        self.sides = tuple(trees)
        self.trees = {**trees, AGAIN: trees.get(BASE, trees[HEAD])}
        self.draw = random.Random(plan.seed)
        self.begun = time.monotonic()
        self.slowdown = 1.0  # measured over expected time of a visit; above 1 on a busy machine

    def race(self) -> None:
        """Count every case, race those to be timed, and race the doubtful ones again."""
        self.count()
        self.cases = [case for case in self.cases if not self.is_needless(case)]
        raced = [case for case in self.cases if case.compared.timed and case.ran]
        if self.plan.times and raced:
            self.size(raced)
            if waiting := [case for case in raced if case.race]:
                self.announce(self.forecast(waiting))
            with ExitStack() as stack:
                other_layout = partial(self.server.with_layout, LAYOUT)
                self.confirming = cache(lambda: stack.enter_context(other_layout()))
                while waiting := self.race_and_confirm(waiting):
                    pass
                self.stage(self.doubtful(raced, lambda *found: not rule.settled(*found)), 1)

    def race_and_confirm(self, cases: list[CheckedCase]) -> list[CheckedCase]:
        """Race as many cases as there is time to confirm, then confirm suspects; return the rest.

        What can be raced only once is raced last.
        """
        batch = self.affordable(cases, (0, 1)) or self.affordable(cases, (0,))
        self.stage(batch, 0)
        self.stage(self.doubtful(batch, rule.suspected), 1)
        return [case for case in cases if case not in batch] if batch else []

    def forecast(self, cases: Sequence[CheckedCase]) -> str:
        """How long the cases take, and the budget that suffices if all have to be confirmed."""
        first, both = (self.cost_s(cases, stages) for stages in ((0,), (0, 1)))
        text = f"timing {many(len(cases), 'case')}: about {first:.0f} s"
        text += f", or {both:.0f} s if every one has to be confirmed"
        left_s = self.server.left_s
        return text if both <= left_s else f"{text}; for that it {self.needed(both)}"

    def needed(self, further_s: float) -> str:
        """The budget that suffices if this much more time is needed."""
        spent_s = (self.plan.budget_s or 0.0) - self.server.left_s
        return f"needs --budget {10 * math.ceil((spent_s + MARGIN * further_s) / 10)}s"

    def cost_s(self, cases: Sequence[CheckedCase], stages: Sequence[int]) -> float:
        """Expected seconds of these stages of the cases."""
        pairs = sum((self.plan.pairs, self.plan.confirm)[number] for number in stages)
        return self.slowdown * pairs * sum(case.race.cost_s for case in cases if case.race)

    def is_needless(self, case: CheckedCase) -> bool:
        """Whether a further form runs on no side, or is the default, which is checked anyway."""
        unsupported = {c.outcome for c in case.counted.values()} == {Outcome.UNSUPPORTED}
        defaults = {other.label for other in self.cases if not other.compared.further}
        return case.compared.further and (unsupported or case.label in defaults)

    def count(self) -> None:
        """Count every case on every side, all sides at the same time."""
        self.observe("counting")
        for side, counted in on_sides(self.server, self.sides, self.count_side).items():
            for case, answer in zip(self.cases, counted, strict=True):
                case.counted[side] = answer

    def count_side(self, side: str) -> list[Counted]:
        """The counts of every case on one side; a process that a case spoils is replaced."""
        answers: list[Counted] = []
        worker: WorkerHandle | None = None
        try:
            for case in self.cases:
                if worker is None or not worker.alive:
                    worker = self.loaded(side)
                asked = {"do": "measure_memory", "checked": True, **case.build_request(side)}
                answer = worker.ask(COUNT_TIMEOUT_S, **asked)
                if answer.get("cause") == Cause.KILLED:  # perhaps by someone else
                    worker = self.loaded(side)
                    answer = worker.ask(COUNT_TIMEOUT_S, **asked)
                answers.append(convert(answer, Counted))
                if answer.get("needs_new_process", True):
                    worker.end()
        except OverBudget:
            if not answers:
                raise
            late = Counted(outcome=Outcome.SKIPPED, reason="not counted when --budget ended")
            answers += [late] * (len(self.cases) - len(answers))
        finally:
            if worker is not None:
                worker.end()
        return answers

    def loaded(self, side: str) -> WorkerHandle:
        """A process on that side that counts. Raises `CannotRun` if its package does not load."""
        return loaded(self.server, side, self.trees[side], measures_memory=True)

    def size(self, cases: list[CheckedCase]) -> None:
        """Set the batch of each case that has none, such that iterations last as planned.

        Those that the budget does not reach are marked skipped.
        """
        with tree_round(self.server, self.trees, self.draw) as processes, suppress(OverBudget):
            for case in cases:
                self.observe(f"sizing {case.label}")
                try:
                    self.size_one(case, processes)
                except Failed as failed:
                    case.failed = failed
        for case in cases:
            if not (case.race or case.failed):
                case.skipped = "it ended before batches were sized; raise it"

    def size_one(self, case: CheckedCase, processes: Round) -> None:
        entrants = (BASE, HEAD, AGAIN) if BASE in self.sides else (HEAD,)
        race = TreeRace(builds={entrants[0]: case.build_request(entrants[0])})
        took_s = min(race.run(processes)[TIME][entrants[0]])
        case.batch = case.batch or self.plan.batch_for(case.workload, took_s)
        batch_s = took_s * case.batch / case.workload.batch
        iterations = max(1, round(self.plan.iteration_s / batch_s))
        case.race = TreeRace(
            builds={entrant: case.build_request(entrant, case.batch) for entrant in entrants},
            rounds=self.plan.rounds_for(len(entrants), iterations * batch_s),
            iterations=iterations,
            iteration_s=batch_s,
        )

    def stage(self, cases: list[CheckedCase], number: int) -> None:
        """Visit the affordable cases with fresh processes, as often as time allows."""
        cases, pairs = self.affordable(cases, (number,)), (self.plan.pairs, self.plan.confirm)
        expected_s = sum(case.race.cost_s for case in cases if case.race)
        for pair in range(pairs[number] if cases else 0):
            doing = "confirming" if number else "comparing"
            self.observe(f"{doing}, pair {pair + 1} of {pairs[number]}")
            begun = time.monotonic()
            try:
                if self.server.left_s < self.slowdown * expected_s:
                    raise OverBudget
                self.visit(cases, number)
            except OverBudget:
                for case in cases:
                    case.skipped = self.needed(self.cost_s(cases, (number,)))
                return
            self.slowdown = max(1.0, (time.monotonic() - begun) / expected_s)

    def visit(self, cases: list[CheckedCase], number: int) -> None:
        """One visit of fresh processes to every case, in random order."""
        server = self.confirming() if number else self.server
        with tree_round(server, self.trees, self.draw) as processes:
            for case in self.draw.sample(cases, len(cases)):
                if case.race is None or case.failed:
                    continue
                self.observe(f"timing {case.label}")
                try:
                    case.stages[number].append(case.race.run(processes))
                except Failed as failed:
                    case.failed = failed

    def affordable(self, cases: list[CheckedCase], stages: Sequence[int]) -> list[CheckedCase]:
        """The cases whose stages fit into the budget; the others are marked skipped."""
        left_s, affordable = self.server.left_s, list[CheckedCase]()
        for case in cases:
            if case.race is None or case.failed:
                continue
            cost_s = self.cost_s([case], stages)
            if cost_s <= left_s:
                left_s -= cost_s
                case.skipped = ""
                affordable.append(case)
            else:
                case.skipped = self.needed(self.cost_s(cases, stages))
        return affordable

    def doubtful(
        self, cases: list[CheckedCase], doubt: Callable[[rule.Evidence, float], bool]
    ) -> list[CheckedCase]:
        """The cases that leave `doubt` after the first stage, and had no second one."""
        unique = {
            id(case): case
            for members, evidence in families(cases)
            if doubt(evidence, self.plan.threshold)
            for case in members
        }
        return [case for case in unique.values() if case.stages[0] and not case.stages[1]]
