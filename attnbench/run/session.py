"""The only loop: plan → launch → store. One process at a time; every outcome is written.

`launch` is a callable, so that a test can answer with recorded replies; so is the clock.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Protocol

from attnbench.analysis import predict
from attnbench.records import Outcome, Part, Planned, Request, Run, Sample
from attnbench.run import schedule
from attnbench.run.launch import Reply

OVERTIME = 5.0  # a process may take this many times what was predicted, and at least
AT_LEAST_S = 60.0


class Launch(Protocol):
    """Starts a worker for a request and waits; `run.launch.Launcher` is the real one."""

    def __call__(self, request: Mapping[str, Any], timeout_s: float | None) -> Reply: ...


class Store(Protocol):
    """Where runs go; `store.journal.Journal` is the real one."""

    def append(self, *records: Any) -> None: ...


@dataclass(frozen=True)
class Progress:
    """What is happening now: `left_s` is what is still to do, by prediction, within the budget."""

    done: int
    total: int
    running: str
    part: Part
    round: int
    predicted_s: float
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
    launch: Launch
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
    off: float = 1.0  # by what factor first guesses were off: the median of the ratios
    ended: list[tuple[Any, Run]] = field(default_factory=list)
    promised: dict[str, float] = field(default_factory=dict)  # seconds still to come, by case
    waiting_s: float = 0.0  # predicted of the cases that the first round has not come to
    done: int = 0  # parts that ran since it began
    useful_s: float = 0.0  # of them, in warm-up and samples

    def run(self) -> None:
        """Round 0 in order of predicted cost, with memory; then the other rounds, shuffled."""
        if math.isnan(self.begun):
            self.begun = self.clock()
        self.recall()
        admitted = self.first_round()
        for round_ in range(1, self.request.rounds):
            for line in schedule.shuffled(admitted, self.request.settings.seed, round_):
                self.promised[line.case.key] = self.rounds_left(line, round_)
                if self.time_left(self.run_cost(line)):
                    self.one(line, Part.TIME, round_)
                else:
                    self.over_budget = True

    def recall(self) -> None:
        """Learn from the runs of earlier sessions, and write the refusals of the plan."""
        by_key = {line.case.key: line for line in self.plan}
        for run in self.earlier:
            if run.case in by_key and (run.case, run.part, run.round) in self.finished:
                self.learn(by_key[run.case], run)
        for line in self.plan:
            if line.refusal:
                self.note(line, Outcome.UNSUPPORTED, line.refusal)

    def first_round(self) -> list[Planned]:
        """Every case that fits, timed once and weighed; the others are written with a reason."""
        waiting = [line for line in self.plan if not line.refusal]
        admitted = []
        while waiting:
            costs = [self.cost(line) for line in waiting]
            line = waiting.pop(costs.index(min(costs)))
            self.waiting_s = sum(costs) - min(costs)
            if refusal := self.refusal(line):
                self.note(line, Outcome.SKIPPED, refusal)
                continue
            self.promised[line.case.key] = self.cost(line)
            if well := self.one(line, Part.TIME, 0):
                admitted.append(line)
                self.one(line, Part.MEMORY, 0)
            self.promised[line.case.key] = self.rounds_left(line, 0) if well else 0.0
        return admitted

    def refusal(self, line: Planned) -> str | None:
        """Why a case is not run now, with its prediction, or None."""
        if (line.case.key, Part.TIME, 0) in self.finished:
            return None
        iteration_s = self.predicted(line)
        needed = predict.scaled_bytes(line, self.peaks.get(kin(line), []))
        if reason := schedule.blocked(line.case, self.ended):
            return reason
        if needed > self.memory_bytes * schedule.MARGIN:
            return schedule.too_large(needed, self.memory_bytes)
        limit, run_s = self.request.case_timeout_s, self.run_cost(line)
        if limit and run_s > limit:
            return schedule.too_long(iteration_s, run_s, limit)
        if not self.time_left(self.cost(line)):
            self.over_budget = True
            return schedule.too_dear(iteration_s, self.cost(line), max(0.0, self.left_s() or 0.0))
        return None

    def one(self, line: Planned, part: Part, round_: int) -> bool:
        """Run one part of one case unless it is done; whether it went well."""
        if (line.case.key, part, round_) in self.finished:
            return True
        self.observe(self.progress(line, part, round_))
        reply = self.launch(
            {
                "case": asdict(line.case),
                "part": part,
                "settings": asdict(self.request.settings),
            },
            self.timeout(line),
        )
        run = to_run(line, part, round_, reply, self.memory_bytes)
        self.store.append(run)
        self.done += 1
        self.useful_s += run.values.get("warmup_s", 0.0) + sum(s.wall_s for s in run.samples)
        self.learn(line, run)
        return run.outcome is Outcome.OK

    def note(self, line: Planned, outcome: Outcome, reason: str) -> None:
        """Write a case that is not run."""
        if (line.case.key, Part.TIME, 0) not in self.finished:
            run = Run(case=line.case.key, part=Part.TIME, round=0, outcome=outcome, reason=reason)
            self.store.append(run)
            self.learn(line, run)

    def learn(self, line: Planned, run: Run) -> None:
        """Use a result for the predictions to come."""
        if run.part is Part.TIME and run.outcome in schedule.ENDS:
            self.ended.append((line.case, run))
        if run.part is Part.TIME and run.samples:
            took = median(s.wall_s / s.iterations for s in run.samples)
            self.times.setdefault(kin(line), []).append((line, took))
            self.ratios.append(took / line.predicted_s)
            self.off = median(self.ratios)
        if peak := run.values.get("allocated_peak_bytes"):
            self.peaks.setdefault(kin(line), []).append((line, peak))

    def predicted(self, line: Planned) -> float:
        """Seconds of one iteration: measured if it has been, else predicted."""
        known = self.times.get(kin(line), [])
        own = [took for other, took in known if other is line]
        return own[-1] if own else predict.seconds(line, known, self.off)

    def run_cost(self, line: Planned) -> float:
        return schedule.run_cost(self.predicted(line), self.request.settings)

    def rounds_left(self, line: Planned, round_: int) -> float:
        """Seconds of the case's rounds after this one that no session has run yet."""
        later = range(round_ + 1, self.request.rounds)
        missing = [r for r in later if (line.case.key, Part.TIME, r) not in self.finished]
        return len(missing) * self.run_cost(line)

    def cost(self, line: Planned) -> float:
        return schedule.case_cost(self.predicted(line), self.request.settings, self.request.rounds)

    def left_s(self) -> float | None:
        """Seconds of the budget that nothing has been promised of."""
        if self.request.budget_s is None:
            return None
        return self.request.budget_s - (self.clock() - self.begun) - sum(self.promised.values())

    def time_left(self, needed_s: float) -> bool:
        left = self.left_s()
        return left is None or needed_s <= left

    def timeout(self, line: Planned) -> float:
        """Seconds after which the process is killed."""
        limits = [max(AT_LEAST_S, OVERTIME * self.run_cost(line))]
        if self.request.case_timeout_s is not None:
            limits.append(self.request.case_timeout_s)
        if self.request.budget_s is not None:
            limits.append(max(1.0, self.request.budget_s - (self.clock() - self.begun)))
        return min(limits)

    def progress(self, line: Planned, part: Part, round_: int) -> Progress:
        """Where the session stands as a part begins."""
        parts = len(self.plan) * (self.request.rounds + 1)
        iteration_s = self.predicted(line)
        left_s = sum(self.promised.values()) + self.waiting_s
        if self.request.budget_s is not None:
            left_s = min(left_s, self.request.budget_s - (self.clock() - self.begun))
        return Progress(
            done=self.done,
            total=parts,
            running=str(line.case),
            part=part,
            round=round_,
            predicted_s=iteration_s,
            left_s=left_s,
        )


def kin(line: Planned) -> tuple[str, Any]:
    """What the cases that predict one another have in common."""
    return line.case.mechanism, line.case.options


def to_run(line: Planned, part: Part, round_: int, reply: Reply, memory_bytes: int) -> Run:
    """The record of a reply, whatever became of its process."""
    answer: Mapping[str, Any] = reply.answer or {}
    if reply.answer is not None:
        outcome, reason = Outcome(answer["outcome"]), answer.get("reason", "")
    else:
        outcome, reason = ending(reply)
    return Run(
        case=line.case.key,
        part=part,
        round=round_,
        outcome=outcome,
        reason=reason,
        samples=tuple(Sample(*row) for row in answer.get("samples", ())),
        values=answer.get("values", {}),
        notes=answer.get("notes", {}),
        elapsed_s=reply.elapsed_s,
    )


def ending(reply: Reply) -> tuple[Outcome, str]:
    """Outcome and reason of a process that did not answer."""
    if reply.timed_out:
        return Outcome.TIMEOUT, f"no answer after {reply.elapsed_s:.0f} s; killed"
    last = reply.log.splitlines()[-1] if reply.log else ""
    said = f": {last}" if last else ""
    if reply.exit_code is not None and reply.exit_code < 0:
        if reply.exit_code == -9 and reply.memory_killed:
            return Outcome.OOM, "the kernel killed the process for memory"
        return Outcome.CRASHED, f"the process died of signal {-reply.exit_code}{said}"
    return Outcome.CRASHED, f"the process ended without an answer (exit {reply.exit_code}){said}"
