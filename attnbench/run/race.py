"""One round: a fresh process for each entrant, and races in which they take turns.

In a race every entrant builds and warms up its case before the first lap; then the processes take
turns while the others wait. Laps come in pairs, a random order and its mirror image (A B C, C B A),
so that drift within a pair affects all entrants alike. An entrant that dies, hangs, fails or
changes its process is replaced for the next race; the others go on. A process ends as soon as its
entrant has failed, since it may hold memory that the others need. Where memory ran out, others may
have held it: the entrant can race again alone. One whose process is killed may not be the reason
either: it builds again at once, or all race again. If all processes die at once, the one that was
running is blamed. An entrant that was killed twice has crashed.
"""

import math
import random
import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NotRequired, TypedDict

from msgspec import ValidationError, convert

from attnbench.records import Cause, Duration, Outcome, Part, Planned, Run, Sample
from attnbench.run.pace import Pace, typical
from attnbench.run.seen import ObservedTimes, contradiction
from attnbench.run.turns import Turns, in_turns
from attnbench.run.workers import Answer, WorkerHandle
from attnbench.store.schema import read_error

SAMPLED = re.compile(r"sample\[(\d+)\]")  # how msgspec names a field of a sample
LEAST_S = 1.0  # time limit of a question asked shortly before the budget ends
CUT_OFF: Answer = MappingProxyType(
    {"outcome": "skipped", "reason": "not finished when --budget ended"}
)


class BuildAnswer(TypedDict):
    """Fields that the answer to `build` must have; the wall time, where it is known."""

    iteration_s: Duration
    wall_s: NotRequired[Duration]


class LapAnswer(TypedDict):
    """The field that the answer to `lap` must have."""

    sample: Sample


class StoredFields(TypedDict, total=False):
    """Fields of any answer that are stored."""

    outcome: Outcome
    cause: Cause | None
    reason: str
    values: dict[str, int | float]
    notes: dict[str, str]


class FinishAnswer(StoredFields):
    """The field that the answer to `finish` must have, besides those stored."""

    needs_new_process: bool


ANSWERS = MappingProxyType({"build": BuildAnswer, "lap": LapAnswer, "finish": FinishAnswer})


@dataclass(frozen=True, kw_only=True)
class Race:
    """What each entrant builds, and how long it runs.

    `turns` is called once all are warm, with the seconds of one iteration of each. `limit_s` gives
    the seconds that an entrant may take in total, from the wall time of one (0: unknown).
    `left_s` gives the seconds left of the budget; once none are left, no case is built, no pair of
    laps begins, and questions are limited to `LEAST_S`. With `end_others`, processes that do not
    take part end first, since the race may need the memory that they keep.
    """

    builds: Mapping[str, Mapping[str, Any]]
    turns: Callable[[Mapping[str, float]], Mapping[str, Turns]]
    limit_s: Callable[[str, float], float]
    left_s: Callable[[], float] = lambda: math.inf
    first_lap: int = 0  # the number of the first lap
    end_others: bool = False
    again_alone: bool = False  # once, for what runs out of memory beside others
    suspects: frozenset[str] = frozenset()  # entrants that were killed in this race before


@dataclass
class Entrant:
    """The results of one entrant in a race; `failed` is an answer that is not `ok`."""

    laps: dict[int, Sample] = field(default_factory=dict)
    finished: Answer = field(default_factory=dict)
    failed: Answer | None = None
    elapsed_s: float = 0.0
    iteration_s: float = 0.0
    wall_s: float = 0.0  # of an iteration
    lost_s: float | None = None  # when it was noticed that it had died together with all others
    suspect: bool = False  # whether it was killed before

    @property
    def killed(self) -> bool:
        """Whether it failed because its process was killed, perhaps by someone else."""
        return self.failed is not None and self.failed.get("cause") == Cause.KILLED

    def judge(self, seen: ObservedTimes) -> None:
        """Fail it and drop its laps if they contradict what was `seen` of its process."""
        if wrong := contradiction(self.laps.values(), seen):
            self.failed, self.laps = impossible(wrong), {}


class Round(AbstractContextManager["Round"]):
    """The processes of one round, each started when first needed; a context manager.

    Memory is measured in processes of their own, since a profiler that has run makes the process
    slower. `start` is called with the entrant's name, for these with `measures_memory=True`. With a
    `pace`, they are measured on its core.
    """

    def __init__(
        self,
        start: Callable[..., WorkerHandle],
        draw: random.Random,
        clock: Callable[[], float] = time.monotonic,
        pace: Pace | None = None,
    ) -> None:
        self.start, self.draw, self.clock, self.pace = start, draw, clock, pace
        self.running: dict[str, WorkerHandle] = {}
        self.memory_workers: dict[str, WorkerHandle] = {}
        self.stack = ExitStack()

    def __exit__(self, *error: object) -> None:
        self.stack.close()

    def race(
        self, race: Race, observe: Callable[[str], None] = lambda entrant: None
    ) -> dict[str, Entrant]:
        """The results of each entrant; `observe` is called with the entrant whose turn it is."""
        entries = self.attempt(race, observe)
        for name, entry in entries.items() if race.again_alone and len(entries) > 1 else ():
            if entry.failed and entry.failed["outcome"] == Outcome.OOM:
                once = replace(race, end_others=True, builds={name: race.builds[name]})
                entries |= self.race(after(entries.values(), once), observe)
        # the first one noticed was the one running when all died
        lost = sorted((e.lost_s, name) for name, e in entries.items() if e.lost_s is not None)
        innocent = {name for _, name in lost[1:]}
        killed = {name for name, entry in entries.items() if entry.killed} - innocent
        again = innocent | {name for name in killed if not entries[name].suspect}
        if again:
            builds = {
                name: build
                for name, build in race.builds.items()
                if name in again or entries[name].failed is None
            }
            later = replace(race, builds=builds, suspects=race.suspects | killed)
            for name, entry in self.race(after(entries.values(), later), observe).items():
                if name in again or entry.failed is not CUT_OFF:
                    entries[name] = entry
        return entries

    def attempt(self, race: Race, observe: Callable[[str], None]) -> dict[str, Entrant]:
        """The results of each entrant in a single race, whatever ended its process."""
        entries = {name: Entrant(suspect=name in race.suspects) for name in race.builds}
        if race.end_others:
            for name in self.running.keys() - race.builds.keys():
                self.running[name].end()
            for worker in self.memory_workers.values():
                worker.end()
        # the same for all, but a new one, which no file kept from earlier runs can anticipate
        common: dict[str, Any] = {"inputs_seed": random.SystemRandom().getrandbits(62)}
        if self.pace:
            self.pace.ready()
            common["core"] = self.pace.core
        for name in self.draw.sample(list(entries), len(entries)):
            observe(name)
            entry = entries[name]
            if race.left_s() > 0:
                asked = {"do": "build", **common, **race.builds[name]}
                built = self.ask(race, name, entry, **asked)
                if entry.killed and not entry.suspect and entry.lost_s is None:
                    entry.failed, entry.suspect = None, True
                    built = self.ask(race, name, entry, **asked)
                self.running[name].seen = ObservedTimes()
                entry.iteration_s = built.get("iteration_s", 0.0)
                entry.wall_s = built.get("wall_s", entry.iteration_s)
            else:
                entry.failed = CUT_OFF
        running = {name: entry for name, entry in entries.items() if entry.failed is None}
        turns = race.turns({name: entry.iteration_s for name, entry in running.items()})
        if self.pace:
            self.pace.ready()
        pair = -1
        for lap, name in in_turns(turns, self.draw):
            if lap // 2 > pair and race.left_s() <= 0:
                break
            pair, entry = lap // 2, entries[name]
            if entry.failed is None:
                observe(name)
                own = turns[name]
                asked = {"iterations": own.iterations, "rehearse": own.rehearsed}
                answer = self.ask(race, name, entry, do="lap", left_s=race.left_s(), **asked)
                if entry.failed is None:
                    taken = answer["sample"]
                    beside = self.pace.beside(taken) if self.pace else taken
                    entry.laps[race.first_lap + lap] = beside
                    entry.judge(self.running[name].seen)
                elif self.pace:  # the next lap is not beside what this one was
                    self.pace.ready()
        for name, entry in entries.items():
            if entry.failed is None and not entry.laps:
                entry.failed = CUT_OFF
            if entry.failed is None:
                entry.finished = self.ask(race, name, entry, do="finish", left_s=race.left_s())
            if entry.failed is None:
                notes = self.running[name].seen.added_to(entry.finished.get("notes", {}))
                values = entry.finished.get("values", {}) | typical(entry.laps.values())
                entry.finished = {**entry.finished, "notes": notes, "values": values}
            if (entry.failed or entry.finished["needs_new_process"]) and name in self.running:
                self.running[name].end()
        return entries

    def ask(self, race: Race, name: str, entry: Entrant, **asked: Any) -> Answer:
        """The answer of an entrant's process; one that is not `ok` is its failure."""
        worker = self.running.get(name)
        if worker is None or (asked["do"] == "build" and not worker.alive):
            worker = self.running[name] = self.start(name)
            self.stack.callback(worker.end)
        limit_s = max(0.0, race.limit_s(name, entry.wall_s) - entry.elapsed_s)
        begun = self.clock()
        answer = worker.ask(min(limit_s, max(LEAST_S, race.left_s())), **asked)
        entry.elapsed_s += self.clock() - begun
        if answer["outcome"] == "timeout" and race.left_s() <= 0:
            answer = CUT_OFF
        if answer["outcome"] == "ok":
            answer = checked(answer, **asked)
        if answer["outcome"] != "ok" and entry.failed is None:
            entry.failed = answer
            entry.lost_s = self.clock() if answer.get("lost") else None
            worker.end()
        return answer

    def measure_memory(
        self,
        name: str,
        limit_s: float,
        end_others: bool = False,
        suspect: bool = False,
        **asked: Any,
    ) -> Answer:
        """The memory of a case of an entrant; the process is kept if it may measure another.

        With `end_others`, all others end first. A case that ends a kept process,
        or whose process is killed, is measured again in a new one, unless it is a `suspect`
        already: something else may have ended it, or needed the memory.
        """
        others = [kept for other, kept in self.memory_workers.items() if other != name]
        for kept in (*others, *self.running.values()) if end_others else ():
            kept.end()
        worker = self.memory_workers.get(name)
        if is_new := worker is None or not worker.alive:
            worker = self.memory_workers[name] = self.start(name, measures_memory=True)
            self.stack.callback(worker.end)
        answer = worker.ask(limit_s, do="measure_memory", **asked)
        if answer.get("needs_new_process", True):
            worker.end()
        died = answer["outcome"] in ("crashed", "oom")
        if died and not suspect and (not is_new or answer.get("cause") == Cause.KILLED):
            return self.measure_memory(name, limit_s, suspect=True, **asked)
        return answer

    @property
    def alive(self) -> int:
        """The number of processes."""
        workers = (*self.running.values(), *self.memory_workers.values())
        return sum(worker.alive for worker in workers)


def after(entries: Iterable[Entrant], race: Race) -> Race:
    """The race with laps numbered after those of the entries, and never paired with them."""
    behind = next_pair(lap for entry in entries for lap in entry.laps)
    return replace(race, first_lap=max(race.first_lap, behind))


def next_pair(laps: Iterable[int]) -> int:
    """The first lap of the pair after these laps, the last of which may be unpaired."""
    return 2 * (max(laps, default=-1) // 2 + 1)


def checked(answer: Answer, do: str, iterations: int = 0, **asked: Any) -> Answer:
    """The answer with its sample as a `Sample`, or a failure if the answer is impossible."""
    try:
        told = {**answer, **convert(answer, ANSWERS[do])}
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
        told: dict[str, Any] = {**convert(dict(answer), StoredFields)}
        run = Run(case=planned.case.key, part=part, round=round_, **told, **more)
        refused = read_error(run)
    except ValidationError as error:
        refused = str(error)
    if refused:
        failed = run_of(planned, part, round_, impossible(refused))
        return replace(failed, elapsed_s=more.get("elapsed_s", 0.0))
    return run
