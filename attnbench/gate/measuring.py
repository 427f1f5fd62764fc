"""A check: count on both sides, race them in pairs, confirm what is suspected, report.

Nothing of a mechanism runs in this process; it asks the sides and waits.
"""

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import median
from types import MappingProxyType

from attnbench.analysis.verdict import Verdict, of_count
from attnbench.errors import CannotRun
from attnbench.gate import rule as gate
from attnbench.gate.cases import Line, Plan, batch_for, families, rounds_for, workload
from attnbench.gate.finding import TIME, Finding, Report, counted, runs
from attnbench.gate.pairs import Statistic, Trial
from attnbench.metrics import TABLE
from attnbench.run.pairs import AGAIN, BASE, HEAD, Failed, TreeRace, of_trees
from attnbench.run.processes import Server
from attnbench.run.race import Round
from attnbench.run.workers import Answer, OverBudget, Worker

COUNT_TIMEOUT_S = 300.0
CONFIRMING = 0.4  # share of the budget kept for the second stage

Observe = Callable[[str], None]


class Gate:
    """One check of `plan` between two trees; `observe` hears what is done now."""

    def __init__(
        self, plan: Plan, server: Server, trees: Mapping[str, Path], observe: Observe
    ) -> None:
        self.plan, self.server, self.observe = plan, server, observe
        self.trees = {**trees, AGAIN: trees.get(BASE, trees[HEAD])}
        self.draw = random.Random(plan.seed)
        self.begun = time.monotonic()
        self.stretch = 1.0  # how much longer a visit takes than its work: other work is going on
        self.lines = [
            Line(chosen=chosen, workload=workload(plan, mode, n))
            for chosen in plan.chosen
            for mode in plan.modes
            for n in plan.lengths
        ]

    def run(self, base: str, head: str) -> Report:
        """Everything, in order; `base` and `head` say in words what the sides are."""
        self.observe("counting")
        self.count((BASE, HEAD))
        self.lines = [line for line in self.lines if line.chosen.timed or self.is_news(line)]
        raced = [line for line in self.lines if line.chosen.timed and self.ran(line)]
        if self.plan.times and raced:
            self.size(raced, (BASE, HEAD, AGAIN))
            self.stage(raced, 0, self.plan.pairs)
            self.stage(self.doubtful(raced), 1, self.plan.confirm)
        trials = families(raced) if self.plan.times else []
        dirty = gate.contaminated([trial for _, trial in trials], self.plan.threshold)
        findings = [*self.counts(), *self.broken(), *self.times(trials, bool(dirty))]
        return Report(
            base=base,
            head=head,
            findings=tuple(findings),
            contaminated=dirty,
            notes=tuple(self.notes()),
            conditions=self.conditions(trials),
        )

    def ran(self, line: Line) -> bool:
        return all(answer["outcome"] == "ok" for answer in line.answers.values())

    def is_news(self, line: Line) -> bool:
        """Whether a further form runs somewhere, and is not the default that was counted."""
        unsupported = all(a["outcome"] == "unsupported" for a in line.answers.values())
        return not unsupported and line.label not in {
            other.label for other in self.lines if other.chosen.timed
        }

    def count(self, names: Sequence[str]) -> None:
        """Ask every tree for the counts of every case, both trees at once."""
        with ThreadPoolExecutor(len(names)) as pool:
            try:
                found = list(pool.map(self.count_side, names))
            except KeyboardInterrupt:
                self.server.close()  # or the pool would wait for answers that nobody wants
                raise
        for name, answers in zip(names, found, strict=True):
            for line, answer in zip(self.lines, answers, strict=True):
                line.answers[name] = answer

    def count_side(self, name: str) -> list[Answer]:
        """The counts of every case on one side; a process that dies is replaced."""
        answers: list[Answer] = []
        side: Worker | None = None
        try:
            for line in self.lines:
                asked = line.asked(name)
                if asked["mechanism"] is None:
                    answers.append({"outcome": "missing", "reason": "there was none"})
                    continue
                if side is None or not side.alive:
                    side = self.loaded(name)
                answers.append(side.ask(COUNT_TIMEOUT_S, do="weigh", checked=True, **asked))
        finally:
            if side is not None:
                side.end()
        return answers

    def loaded(self, name: str) -> Worker:
        """A process of that side. Raises `CannotRun` if its package does not load."""
        side = self.server.worker(self.trees[name], weighs=True)
        if side.started["outcome"] != "ok":
            side.end()
            raise CannotRun(f"{name} cannot be measured: {side.started['reason']}")
        return side

    def size(
        self,
        lines: list[Line],
        entrants: Sequence[str],
        batches: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Choose each case's batch, so that an iteration takes as long as planned, or is given."""
        with of_trees(self.server, self.trees, self.draw) as processes:
            for line in lines:
                self.observe(f"sizing {line.label}")
                try:
                    self.size_one(line, entrants, processes, batches.get(line.label))
                except Failed as failed:
                    line.broken = failed

    def size_one(
        self, line: Line, entrants: Sequence[str], processes: Round, batch: int | None
    ) -> None:
        one = entrants[0]
        race = TreeRace(builds={one: line.asked(one)})
        took = min(race.run(processes)[one])
        batch = batch or batch_for(line.workload, took, self.plan.iteration_s)
        per_batch = took * batch / line.workload["batch"]
        sized = {**line.workload, "batch": batch}
        iterations = max(1, round(self.plan.iteration_s / per_batch))
        line.race = replace(
            race,
            builds={name: {**line.asked(name), "workload": sized} for name in entrants},
            rounds=rounds_for(self.plan, len(entrants), iterations * per_batch),
            iterations=iterations,
            iteration_s=per_batch,
        )

    def stage(self, lines: list[Line], number: int, pairs: int) -> None:
        """Visits of fresh processes to the cases that the time is enough for, as many as fit."""
        kept_s = CONFIRMING * (self.plan.budget_s or 0) if number == 0 else 0.0
        lines = [line for line in lines if line.race and not line.broken]
        lines = self.affordable(lines, pairs, kept_s)
        expected_s = sum(line.race.cost_s for line in lines if line.race)
        for pair in range(pairs if lines else 0):
            self.observe(f"{'confirming' if number else 'comparing'}, pair {pair + 1} of {pairs}")
            begun = time.monotonic()
            try:
                if self.server.left_s - kept_s < self.stretch * expected_s:
                    raise OverBudget
                self.visit(lines, number)
            except OverBudget:
                for line in lines:
                    ran = sum(map(len, line.stages))
                    line.skipped = f"over budget after {ran} pairs of processes"
                return
            self.stretch = max(1.0, (time.monotonic() - begun) / expected_s)

    def visit(self, lines: list[Line], number: int) -> None:
        """One visit of fresh processes to every case, in random order."""
        with of_trees(self.server, self.trees, self.draw) as processes:
            for line in self.draw.sample(lines, len(lines)):
                if line.race is None or line.broken:
                    continue
                self.observe(f"timing {line.label}")
                try:
                    line.stages[number].append(line.race.run(processes))
                except Failed as failed:
                    line.broken = failed

    def affordable(self, lines: list[Line], pairs: int, kept_s: float) -> list[Line]:
        """The cases that fit into the budget less `kept_s`, in order; the others say that."""
        left = self.server.left_s - kept_s
        kept = []
        for line in lines:
            assert line.race is not None
            cost = self.stretch * pairs * line.race.cost_s
            if cost <= left:
                left -= cost
                kept.append(line)
            else:
                line.skipped = f"over budget: {max(1, cost - left):.0f} s more are needed"
        return kept

    def doubtful(self, lines: list[Line]) -> list[Line]:
        """What the second stage visits: suspects first, then what is not settled."""
        threshold = self.plan.threshold
        suspects, open_ = [], []
        for members, trial in families(lines):
            if gate.suspected(trial, threshold):
                suspects += members
            elif not gate.settled(trial, threshold):
                open_ += members
        found = {id(line): line for line in (*suspects, *open_)}
        return [line for line in found.values() if line.stages[0]]

    def counts(self) -> Iterator[Finding]:
        for line in self.lines:
            base, head = line.answers[BASE], line.answers[HEAD]
            if found := runs(line.chosen.name, line.label, base, head):
                yield found
            if "values" in base and "values" in head:
                yield from counted(line.chosen.name, line.label, base["values"], head["values"])

    def broken(self) -> Iterator[Finding]:
        """Cases that ran when they were counted and not when they were timed."""
        for line in self.lines:
            if (why := line.broken) is None:
                continue
            ok = {"outcome": "ok", "reason": ""}
            failed = {"outcome": why.outcome, "reason": why.reason}
            sides = {BASE: ok, HEAD: ok, HEAD if why.entrant == HEAD else BASE: failed}
            found = runs(line.chosen.name, line.label, sides[BASE], sides[HEAD])
            if found is not None:
                yield found

    def times(
        self, trials: list[tuple[list[Line], Trial]], contaminated: bool
    ) -> Iterator[Finding]:
        judged = gate.judge([trial for _, trial in trials], self.plan.threshold)
        for (lines, trial), (verdict, effect, reason, of) in zip(trials, judged, strict=True):
            one = lines[0] if len(lines) == 1 else None
            shown = effect.low > float("-inf")
            ratios = [math.exp(x) if shown else None for x in effect[:3]]
            sides = [one.seconds(side, of) if one else () for side in (BASE, HEAD)]
            base, head = (median(times) if times else None for times in sides)
            if contaminated and verdict in (Verdict.SLOWER, Verdict.FASTER):
                reason = "the job is contaminated: base differs from base"
            elif one and one.skipped and verdict is Verdict.UNSURE:
                reason = one.skipped
            yield Finding(
                mechanism=lines[0].chosen.name,
                case=trial.name,
                metric=TIME,
                base=base,
                head=head,
                ratio=ratios[0],
                low=ratios[1],
                high=ratios[2],
                verdict=verdict,
                reason=reason,
                fails=verdict is Verdict.SLOWER and not contaminated,
                batch=one.batch if one else None,
                cases=len(lines),
            )

    def notes(self) -> Iterator[str]:
        """What a reader should know of the cases."""
        for line in self.lines:
            forms = [line.answers.get(side, {}).get("form") for side in (BASE, HEAD)]
            if all(forms) and forms[0] != forms[1]:
                yield f"{line.label}: its default was {forms[0]} on base, is {forms[1]} on head"
        copying = [line.label for line in self.lines if self.copies_more(line)]
        if self.plan.times and copying:
            more = f" and {len(copying) - 1} more" if len(copying) > 1 else ""
            yield (
                f"{copying[0]}{more}: more bytes are moved than on base; times are taken with freed"
                " memory kept by the process, which hides part of what a copy costs elsewhere"
            )

    def copies_more(self, line: Line) -> bool:
        """Whether head moves more bytes, so that the allocator's setting matters."""
        values = [line.answers.get(side, {}).get("values", {}) for side in (BASE, HEAD)]
        moved = TABLE["moved_bytes"]
        base, head = (side.get(moved.key) for side in values)
        return self.plan.device == "cpu" and of_count(base, head, moved) is Verdict.SLOWER

    def conditions(self, trials: list[tuple[list[Line], Trial]]) -> dict[str, str | float]:
        """How it was measured, for the record."""
        elapsed_s = time.monotonic() - self.begun
        ran: dict[str, str | float] = {"elapsed_s": elapsed_s, "seed": self.plan.seed}
        if not trials:
            return ran
        own = [trial for lines, trial in trials if len(lines) == 1]
        return {
            "clock": "process CPU time" if self.plan.device == "cpu" else "device time",
            "pairs": self.plan.pairs,
            "confirm": self.plan.confirm,
            "rounds": self.plan.rounds,
            "threshold": self.plan.threshold,
            "worst_floor": max(trial.view(Statistic.TYPICAL).floor for trial in own),
            **ran,
        }
