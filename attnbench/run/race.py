"""One round: a fresh process for each series, and races in which they take turns.

In a race every process builds and warms up its case before the first lap; then they take turns
while the others wait. Laps come in pairs, a random order and its mirror image (A B C, C B A), so
that drift within a pair affects all alike. A process that dies, hangs, fails or was changed is
replaced for the next race; the others go on. It ends as soon as its case has failed, since it may
hold memory that the others need. Where memory ran out, others may have held it: the case can race
again alone. A case whose process is killed may not be the reason either: all race again. If all
processes die at once, the one that was running is blamed. What was killed twice has crashed.
"""

import math
import random
import re
import time
from collections.abc import Callable, Mapping, Set
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias, TypedDict

from msgspec import ValidationError, convert

from attnbench.records import Cause, Duration, Outcome, Part, Planned, Run, Sample
from attnbench.run.pace import Pace, typical
from attnbench.run.process import Answer, Process
from attnbench.run.seen import ObservedTimes, contradiction
from attnbench.run.turns import Turns, in_turns, next_pair
from attnbench.store.schema import read_error

SAMPLED = re.compile(r"sample\[(\d+)\]")  # how msgspec names a field of a sample
LEAST_S = 1.0  # time limit of a question asked shortly before the budget ends
CUT_OFF: Answer = MappingProxyType(
    {"outcome": "skipped", "reason": "not finished when --budget ended"}
)
# what the answer to a question must have
NEEDED = MappingProxyType({"build": "iteration_s", "lap": "sample", "finish": "needs_new_process"})
STORED = ("outcome", "cause", "reason", "values", "notes")  # of an answer

Builds: TypeAlias = Mapping[str, Mapping[str, Any]]  # what each series builds
ChooseTurns: TypeAlias = Callable[[Mapping[str, float]], Mapping[str, Turns]]


class Answered(TypedDict, total=False):
    """What a process may answer, beside what is only passed on."""

    iteration_s: Duration
    wall_s: Duration
    sample: Sample
    needs_new_process: bool
    outcome: Outcome
    cause: Cause | None
    reason: str
    values: dict[str, int | float]
    notes: dict[str, str]


@dataclass
class Entry:
    """What a race gave of one case; `failed` is an answer that is not `ok`.

    `limit_s` gives the seconds that its process may take in total, from the wall time of an
    iteration (0: unknown).
    """

    limit_s: Callable[[float], float]
    laps: dict[int, Sample] = field(default_factory=dict)
    finished: Answer = field(default_factory=dict)
    failed: Answer | None = None
    elapsed_s: float = 0.0
    iteration_s: float = 0.0
    wall_s: float = 0.0  # of an iteration
    lost_s: float | None = None  # when it was noticed that it had died together with all others

    @property
    def killed(self) -> bool:
        """Whether it failed because its process was killed, perhaps by someone else."""
        return self.failed is not None and self.failed.get("cause") == Cause.KILLED


class Round(AbstractContextManager["Round"]):
    """The processes of one round, each started when first needed; a context manager.

    The memory of each case is measured in a process of its own, since a profiler that has run makes
    the process slower. `start` is called with the name of a series, for these with
    `measures_memory=True`.
    `left_s` gives the seconds left of the budget; once none are left, no case is built, no pair of
    laps begins, and questions are limited to `LEAST_S`. With a `pace`, processes are measured on
    its core.
    """

    def __init__(
        self,
        start: Callable[..., Process],
        draw: random.Random,
        clock: Callable[[], float] = time.monotonic,
        pace: Pace | None = None,
        left_s: Callable[[], float] = lambda: math.inf,
    ) -> None:
        self.start, self.draw, self.clock, self.pace = start, draw, clock, pace
        self.left_s = left_s
        self.observe: Callable[[str], None] = lambda series: None  # called with whose turn it is
        self.running: dict[str, Process] = {}
        self.stack = ExitStack()

    def __exit__(self, *error: object) -> None:
        self.stack.close()

    def race(
        self,
        builds: Builds,
        turns: ChooseTurns,
        limit_s: Callable[[str, float], float],
        *,
        first_lap: int = 0,
        again_alone: bool = False,
        end_others: bool = False,
        killed: frozenset[str] = frozenset(),
    ) -> dict[str, Entry]:
        """The entry of each series, of the case that it `builds`.

        `turns` is called once all are warm, with the seconds of one iteration of each. With
        `again_alone`, what runs out of memory beside others races once more, alone. With
        `end_others`, processes that do not take part end first, since the race may need the memory
        that they keep. Those of the series `killed` were so in this race before.
        """
        for name in self.running.keys() - builds.keys() if end_others else ():
            self.running[name].end()
        entries = {name: Entry(partial(limit_s, name)) for name in builds}
        self.build(entries, builds)
        self.take_turns(entries, turns, first_lap)
        self.finish(entries)

        def once_more(names: Set[str], killed: frozenset[str], alone: bool) -> dict[str, Entry]:
            behind = next_pair(lap for entry in entries.values() for lap in entry.laps)
            return self.race(
                {name: build for name, build in builds.items() if name in names},
                turns,
                limit_s,
                first_lap=max(first_lap, behind),
                again_alone=again_alone,
                end_others=end_others or alone,
                killed=killed,
            )

        for name, entry in entries.items() if again_alone and len(entries) > 1 else ():
            if entry.failed and entry.failed["outcome"] == Outcome.OOM:
                entries |= once_more({name}, killed, alone=True)
        # the first one noticed was the one running when all died
        lost = sorted((e.lost_s, name) for name, e in entries.items() if e.lost_s is not None)
        beside = {name for _, name in lost[1:]}
        now = {name for name, entry in entries.items() if entry.killed} - beside
        if again := beside | (now - killed):
            going_on = {name for name, entry in entries.items() if entry.failed is None}
            for name, entry in once_more(again | going_on, killed | now, alone=False).items():
                if name in again or entry.failed is not CUT_OFF:
                    entries[name] = entry
        return entries

    def build(self, entries: Mapping[str, Entry], builds: Builds) -> None:
        """Build and warm up every case, in a random order."""
        # the same for all, but a new one, which no file kept from earlier runs can anticipate
        common: dict[str, Any] = {"inputs_seed": random.SystemRandom().getrandbits(62)}
        if self.pace:
            self.pace.ready()
            common["core"] = self.pace.core
        for name in self.draw.sample(list(entries), len(entries)):
            self.observe(name)
            entry = entries[name]
            if self.left_s() <= 0:
                entry.failed = CUT_OFF
                continue
            built = self.ask(name, entry, do="build", **common, **builds[name])
            self.running[name].seen = ObservedTimes()
            entry.iteration_s = built.get("iteration_s", 0.0)
            entry.wall_s = built.get("wall_s", entry.iteration_s)

    def take_turns(self, entries: Mapping[str, Entry], turns: ChooseTurns, first_lap: int) -> None:
        """Take the laps of every case, pair by pair."""
        often = turns({n: entry.iteration_s for n, entry in entries.items() if not entry.failed})
        if self.pace:
            self.pace.ready()
        pair = -1
        for lap, name in in_turns(often, self.draw):
            if lap // 2 > pair and self.left_s() <= 0:
                break
            pair, entry = lap // 2, entries[name]
            if entry.failed is not None:
                continue
            self.observe(name)
            asked = {"iterations": often[name].iterations, "rehearse": often[name].rehearsed}
            answer = self.ask(name, entry, do="lap", left_s=self.left_s(), **asked)
            if entry.failed is None:
                taken = answer["sample"]
                entry.laps[first_lap + lap] = self.pace.beside(taken) if self.pace else taken
                if wrong := contradiction(entry.laps.values(), self.running[name].seen):
                    entry.failed, entry.laps = impossible(wrong), {}
            elif self.pace:  # the next lap is not beside what this one was
                self.pace.ready()

    def finish(self, entries: Mapping[str, Entry]) -> None:
        """Get the values and notes of every case, and end the processes that cannot go on."""
        for name, entry in entries.items():
            if entry.failed is None and not entry.laps:
                entry.failed = CUT_OFF
            if entry.failed is None:
                entry.finished = self.ask(name, entry, do="finish", left_s=self.left_s())
            if entry.failed is None:
                notes = self.running[name].seen.added_to(entry.finished.get("notes", {}))
                values = entry.finished.get("values", {}) | typical(entry.laps.values())
                entry.finished = {**entry.finished, "notes": notes, "values": values}
            if (entry.failed or entry.finished["needs_new_process"]) and name in self.running:
                self.running[name].end()

    def ask(self, name: str, entry: Entry, **asked: Any) -> Answer:
        """The answer of a series' process; one that is not `ok` is its failure."""
        process = self.running.get(name)
        if process is None or (asked["do"] == "build" and not process.alive):
            process = self.running[name] = self.start(name)
            self.stack.callback(process.end)
        most_s = max(0.0, entry.limit_s(entry.wall_s) - entry.elapsed_s)
        begun = self.clock()
        answer = process.ask(min(most_s, max(LEAST_S, self.left_s())), **asked)
        entry.elapsed_s += self.clock() - begun
        if answer["outcome"] == "timeout" and self.left_s() <= 0:
            answer = CUT_OFF
        if answer["outcome"] == "ok":
            answer = checked(answer, **asked)
        if answer["outcome"] != "ok" and entry.failed is None:
            entry.failed = answer
            entry.lost_s = self.clock() if answer.get("lost") else None
            process.end()
        return answer

    def measure_memory(
        self, name: str, limit_s: float, *, end_others: bool = False, **asked: Any
    ) -> Answer:
        """The memory of a case of a series, measured in a process of its own.

        With `end_others`, those that race end first. A case whose process is killed is measured
        once more: something else may have ended it, or needed the memory.
        """
        for process in self.running.values() if end_others else ():
            process.end()
        for _ in range(2):
            with self.start(name, measures_memory=True) as process:
                answer = process.ask(limit_s, do="measure_memory", **asked)
            if answer.get("cause") != Cause.KILLED:
                break
        return answer


def checked(answer: Answer, do: str, iterations: int = 0, **asked: Any) -> Answer:
    """The answer with its sample as a `Sample`, or a failure if the answer is impossible."""
    if NEEDED[do] not in answer:
        return impossible(f"Object missing required field `{NEEDED[do]}`")
    try:
        told = {**answer, **convert(answer, Answered)}
    except ValidationError as error:
        return impossible(SAMPLED.sub(lambda m: f"sample.{Sample._fields[int(m[1])]}", str(error)))
    if do == "lap" and told["sample"].iterations != iterations:
        return impossible(f"{told['sample'].iterations} iterations in place of {iterations}")
    return told


def impossible(wrong: str) -> Answer:
    """The outcome of a case whose process gave an answer that would be refused on reading."""
    return {"outcome": "failed", "reason": f"its process gave an impossible answer: {wrong}"}


def run_of(planned: Planned, part: Part, round_: int, answer: Answer, **more: Any) -> Run:
    """The run of a case, from its process's answer; failed if that would be refused on reading."""
    try:
        told: Mapping[str, Any] = convert(
            {key: answer[key] for key in STORED if key in answer}, Answered
        )
        run = Run(case=planned.case.key, part=part, round=round_, **told, **more)
        refused = read_error(run)
    except ValidationError as error:
        refused = str(error)
    if refused:
        failed = run_of(planned, part, round_, impossible(refused))
        return replace(failed, elapsed_s=more.get("elapsed_s", 0.0))
    return run
