"""One round: a fresh process for each series, and races in which they take turns.

In a race every process builds and warms up its case before the first lap; then they take turns
while the others wait. Laps come in pairs, a random order and its mirror image (A B C, C B A), so
that drift within a pair affects all alike. A process that dies, hangs, fails or was changed is
replaced for the next race; the others go on. It ends as soon as its case has failed, since it may
hold memory that the others need. Where memory ran out, others may have held it: the case can race
again alone. A case whose process is killed may not be the reason either: all race once more, and
what is then killed has crashed.
"""

import math
import os
import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from msgspec.structs import replace as with_fields

from attnbench.devices.disturbances import FAULTING
from attnbench.devices.timing import COLD, FAULT_S, REHEARSAL_S
from attnbench.records import REHEARSED_S, Clock, Outcome, Part, Planned, Run, Sample, Settings
from attnbench.records.messages import (
    A,
    Build,
    Failure,
    Finish,
    Finished,
    Lap,
    Lapped,
    ProcessQuestion,
    Weighed,
    impossible,
)
from attnbench.records.notes import Note
from attnbench.records.storage.schema import read_run
from attnbench.running.pace import Pace
from attnbench.running.process import Process

LEAST_S = 1.0  # time limit of a question asked shortly before the budget ends
CUT_OFF = Failure(outcome=Outcome.SKIPPED, reason="not finished when --budget ended")
MOST_PAIRS = 6  # pairs of laps; more would only make samples shorter
# A mechanism can change the clocks of its process, and compute while others take their turns, but
# not what the kernel counts. The bounds are wide, so that no load of the machine exceeds them: from
# the first lap on, a process may take this many times what its laps claim, as samples are taken up
# to three times and one iteration is repeated, plus this many seconds for each, as rehearsals take
# at most 0.1 s. The kernel counts in hundredths of a second.
MOST = 4.0
LAP_S = 0.25
TICKS_S = 0.05
# What a process took for one lap is known to the nanosecond. It may be this many times what the lap
# claims with its rehearsal, plus the time of an answer and of what is done before each iteration;
# and twice that where pages fault, as the lap may then be taken again. Of 1,852 honest laps of 81
# mechanisms and modules under a load of 8 to 18, the worst reached 0.79 of this bound; and it is
# most laps of a race that must exceed it.
CLAIMED = 1.25
ANSWER_S = 0.006
BEFORE_S = 2e-5
# While pages fault, rehearsals are repeated: of a module that maps new memory at each call, laps
# took up to 12 times what they claim, and 0.22 s more.
REHEARSALS_S = 2 * REHEARSAL_S
APART = 0.01  # by which the phases of a lap and their sum may differ

Builds: TypeAlias = Mapping[str, Build]  # what each series builds
LimitSeconds: TypeAlias = Callable[[str, float], float]
ChooseTurns: TypeAlias = Callable[[Mapping[str, float]], Mapping[str, "Turns"]]


@dataclass(frozen=True, kw_only=True)
class Turns:
    """How often a case runs in a race: pairs of laps, and iterations of each sample.

    Where it is `rehearsed`, one more iteration runs untimed before each sample: other processes
    have used the caches.
    """

    pairs: int
    iterations: int
    rehearsed: bool = False

    @property
    def total(self) -> int:
        """How many iterations run."""
        return 2 * self.pairs * (self.iterations + self.rehearsed)


@dataclass(frozen=True)
class Usage:
    """What a process used while it was asked for a lap, as the kernel counts it.

    `cpu_s` is NaN where that is unknown, `faults` are pages that it mapped, and `rehearsed` is
    whether it was to run one more iteration.
    """

    cpu_s: float
    faults: int
    rehearsed: bool = True


@dataclass
class Entry:
    """What a race gave of one case: its laps and the last `answer`, or the `failure`."""

    laps: dict[int, Sample] = field(default_factory=dict)
    answer: Finished | None = None
    failure: Failure | None = None
    elapsed_s: float = 0.0
    iteration_s: float = 0.0
    wall_s: float = 0.0  # of an iteration; 0: unknown
    usage: dict[int, Usage] = field(default_factory=dict)  # for each lap
    was_beside: bool = False  # beside something else when memory ran out

    def add_later(self, failure: Failure) -> None:
        """Note that the case, which was timed, failed in a later race of its round."""
        assert self.answer, "it was timed"
        text = failure_in_later_race(failure.outcome, failure.reason)
        self.answer = with_fields(self.answer, notes={**self.answer.notes, Note.LATER: text})

    @property
    def ending(self) -> Finished | Failure:
        """What its run is made of."""
        ending = self.failure or self.answer
        assert ending, "a race has ended"
        return ending


class SideWork:
    """What else may run while a round builds and finishes its cases; here nothing does.

    While laps run, and while cases race again, it pauses.
    """

    def ask(self, process: Process, question: ProcessQuestion[A], limit_s: float) -> A | Failure:
        """The answer of a process of the race, as `Process.ask` gives it; meanwhile it goes on."""
        return process.ask(question, limit_s)

    def pause(self) -> AbstractContextManager[None]:
        """Within the block nothing else runs."""
        return nullcontext()

    def give_way(self) -> bool:
        """End what runs, for later, so that it holds no memory; whether anything did."""
        return False


class Round(AbstractContextManager["Round"]):
    """The processes of one round, each started when first needed; a context manager.

    `start` is called with the name of a series.
    `left_s` gives the seconds left of the budget; once none are left, no case is built, no pair of
    laps begins, and questions are limited to `LEAST_S`. With a `pace`, processes are measured on
    its core. `side_work` is what else may run meanwhile.
    """

    def __init__(
        self,
        start: Callable[..., Process],
        draw: random.Random,
        clock: Callable[[], float] = time.monotonic,
        pace: Pace | None = None,
        left_s: Callable[[], float] = lambda: math.inf,
        side_work: SideWork | None = None,
    ) -> None:
        self.start = start
        self.draw = draw
        self.clock = clock
        self.pace = pace
        self.left_s = left_s
        self.side_work = side_work or SideWork()
        self.observe: Callable[[str], None] = lambda series: None  # called with whose turn it is
        self.limit_s: LimitSeconds = lambda series, wall_s: math.inf
        self.running: dict[str, Process] = {}

    def __exit__(self, *error: object) -> None:
        self.end(self.running)

    def end(self, names: Iterable[str]) -> None:
        """End the processes of these series; each is replaced when next needed."""
        for name in names:
            self.running[name].end()

    def race(
        self,
        builds: Builds,
        turns: ChooseTurns,
        limit_s: LimitSeconds,
        *,
        first_lap: int = 0,
        again_alone: bool = False,
    ) -> dict[str, Entry]:
        """The entry of each series, of the case that it `builds`.

        `turns` is called once all are warm, with the seconds of one iteration of each. `limit_s`
        gives the seconds that a series may take in total, from the wall time of an iteration. With
        `again_alone`, what runs out of memory beside others races once more, alone.
        """

        self.limit_s = limit_s
        entries = self.attempt(builds, turns, first_lap)

        def race_again(names: Collection[str]) -> dict[str, Entry]:
            next_lap = next_pair(lap for entry in entries.values() for lap in entry.laps)
            once_more = {name: builds[name] for name in names}
            self.side_work.give_way()
            with self.side_work.pause():
                return self.attempt(once_more, turns, max(first_lap, next_lap))

        ended = {name: entry.failure for name, entry in entries.items() if entry.failure}
        # perhaps by someone else
        if killed := {name for name, failure in ended.items() if failure.is_killed}:
            for name, entry in race_again(killed | entries.keys() - ended.keys()).items():
                if name in killed or entry.failure is None:
                    entries[name] = entry
                elif entry.failure is not CUT_OFF:
                    entries[name].add_later(entry.failure)
        for name, entry in entries.items() if again_alone else ():
            if entry.was_beside and entry.failure and entry.failure.is_out_of_memory:
                self.end(self.running)
                entries |= race_again({name})
        return entries

    def attempt(self, builds: Builds, turns: ChooseTurns, first_lap: int) -> dict[str, Entry]:
        """Build every case, take its laps in turns, and ask for its values and notes."""
        entries = {name: Entry() for name in builds}
        self.build(entries, builds)
        turns_of = turns(
            {n: entry.iteration_s for n, entry in entries.items() if not entry.failure}
        )
        with self.side_work.pause():
            self.take_turns({name: entries[name] for name in turns_of}, turns_of, first_lap)
        for name in turns_of:
            self.finish(name, entries[name])
        return entries

    def build(self, entries: Mapping[str, Entry], builds: Builds) -> None:
        """Build and warm up every case, in a random order."""
        # the same for all, but a new one, which no file kept from earlier runs can anticipate
        common: dict[str, Any] = {"inputs_seed": random.SystemRandom().getrandbits(62)}
        if self.pace:
            self.pace.reset()
            common["core"] = self.pace.core
        for name in self.draw.sample(list(entries), len(entries)):
            self.observe(name)
            entry = entries[name]
            if self.left_s() <= 0:
                entry.failure = CUT_OFF
                continue
            warm = self.ask(name, entry, with_fields(builds[name], **common))
            if warm is not None:
                entry.iteration_s = warm.iteration_s
                entry.wall_s = warm.wall_s

    def take_turns(
        self, entries: Mapping[str, Entry], turns_of: Mapping[str, Turns], first_lap: int
    ) -> None:
        """Take the laps of every case, pair by pair."""
        for name in entries:
            self.running[name].user_s()  # which counts from now on
        if self.pace:
            self.pace.reset()
        pair = -1
        for lap, name in in_turns(turns_of, self.draw):
            if lap // 2 > pair and self.left_s() <= 0:
                break
            pair = lap // 2
            entry = entries[name]
            if entry.failure is not None:
                continue
            self.observe(name)
            lapped = self.lap(name, entry, turns_of[name])
            if lapped is not None:
                cpu_s, faults = self.running[name].new_usage()
                rehearsed = turns_of[name].rehearsed
                entry.usage[first_lap + lap] = Usage(cpu_s - lapped.untimed_s, faults, rehearsed)
                sample = lapped.sample
                entry.laps[first_lap + lap] = self.pace.with_pace(sample) if self.pace else sample
            elif self.pace:  # the next lap is not beside what this one was
                self.pace.reset()

    def lap(self, name: str, entry: Entry, turns: Turns) -> Lapped | None:
        """One lap of a case; None where it failed."""
        question = Lap(iterations=turns.iterations, rehearse=turns.rehearsed, left_s=self.left_s())
        self.running[name].new_usage()  # which counts from now on
        lapped = self.ask(name, entry, question)
        if lapped is None or lapped.sample.iterations == turns.iterations:
            return lapped
        wrong = f"{lapped.sample.iterations} iterations in place of {turns.iterations}"
        entry.failure = impossible(f"{wrong} of a sample")
        self.end([name])
        return None

    def finish(self, name: str, entry: Entry) -> None:
        """Get the values and notes of a case, and end a process that cannot go on."""
        if entry.failure is None and not entry.laps:
            entry.failure = CUT_OFF
        if entry.failure is None:
            used_s = self.running[name].user_s()
            left_s = self.limit_s(name, entry.wall_s) - entry.elapsed_s
            entry.answer = self.ask(name, entry, Finish(left_s=min(self.left_s(), left_s)))
            untimed_s = entry.answer.untimed_s if entry.answer else 0.0
            reason = contradiction(entry.laps.values(), used_s - untimed_s)
            reason = reason or inconsistency(entry.laps.values())
            reason = reason or understatement(entry.laps, entry.usage)
            if reason:
                entry.failure = impossible(reason)
                entry.laps = {}
        if entry.answer is None or entry.failure or entry.answer.needs_new_process:
            self.end([name])

    def ask(self, name: str, entry: Entry, question: ProcessQuestion[A]) -> A | None:
        """The answer of a series' process; None where that failed, which ends the process."""
        process = self.running.get(name)
        if process is None or (isinstance(question, Build) and not process.alive):
            process = self.running[name] = self.start(name)
        most_s = max(0.0, self.limit_s(name, entry.wall_s) - entry.elapsed_s)
        begun = self.clock()
        budget_s = max(LEAST_S, self.left_s())
        limit_s = min(most_s, budget_s)
        answer = self.side_work.ask(process, question, limit_s)
        took_s = self.clock() - begun
        # an answer that came after its limit waited for this process, which was stopped meanwhile
        was_stopped = took_s > limit_s + LEAST_S and not isinstance(answer, Failure)
        entry.elapsed_s += 0.0 if was_stopped else took_s
        if not isinstance(answer, Failure):
            return answer
        cut_off = answer.is_timeout and (budget_s < most_s or self.left_s() <= 0)
        entry.failure = CUT_OFF if cut_off else answer
        process.end()
        if answer.is_out_of_memory:
            others_run = any(self.running[other].alive for other in self.running.keys() - {name})
            entry.was_beside = self.side_work.give_way() or others_run
        return None


def failure_in_later_race(outcome: str, reason: str) -> str:
    """The note of a case that was timed, and that failed in a later race of its round."""
    return f"{outcome} in a later race of its round: {reason}"


def turns(iteration_s: float, settings: Settings) -> Turns:
    """How often a case runs in one race: at least one pair of laps, of one iteration each.

    The time of samples includes their rehearsals.
    """
    rehearsed = iteration_s < REHEARSED_S
    lap_s = max((1 + rehearsed) * iteration_s, settings.interval_s, 1e-9)
    pairs = min(MOST_PAIRS, max(1, round(settings.sample_s / (2 * lap_s))))
    wanted_s = max(settings.interval_s, settings.sample_s / (2 * pairs))
    iterations = max(1, round(wanted_s / max(iteration_s, 1e-9)) - rehearsed)
    return Turns(pairs=pairs, iterations=iterations, rehearsed=rehearsed)


def in_turns(turns: Mapping[str, Turns], draw: random.Random) -> Iterator[tuple[int, str]]:
    """Lap and series of every turn: pairs of laps in a random order and its mirror image.

    A series with fewer pairs than others runs in the first ones.
    """
    for pair in range(max((series_turns.pairs for series_turns in turns.values()), default=0)):
        running = [name for name, series_turns in turns.items() if pair < series_turns.pairs]
        order = draw.sample(running, len(running))
        yield from ((2 * pair, name) for name in order)
        yield from ((2 * pair + 1, name) for name in reversed(order))


def next_pair(laps: Iterable[int]) -> int:
    """The first lap of the pair after these laps, the last of which may be unpaired."""
    return 2 * (max(laps, default=-1) // 2 + 1)


def contradiction(samples: Collection[Sample], used_s: float) -> str:
    """Why these laps cannot be, if the kernel counts so much CPU time; empty if they can.

    Samples by a GPU's clock are not judged: it is not a clock of the kernel.
    """
    cpu_s = sum(sample.cpu_s for sample in samples)
    timed = all(sample.device_s is None for sample in samples)
    rest_s = LAP_S * len(samples) * cores_used(samples) if timed else 0.0
    if timed and used_s > MOST * cpu_s + rest_s + TICKS_S:
        return f"{cpu_s:.3g} s of CPU time in laps, while the kernel counts {used_s:.3g} s"
    return ""


def inconsistency(samples: Collection[Sample]) -> str:
    """Why the times of these laps cannot be of one process; empty if they can."""
    for sample in samples:
        if sample.device_s is not None:
            continue
        phases_s = sample.forward_s + sample.backward_s + sample.step_s
        counted_s = sample.cpu_s if sample.clock is Clock.CPU else sample.wall_s
        if abs(phases_s - counted_s) > APART * counted_s:
            return f"phases of {phases_s:.3g} s in a lap of {counted_s:.3g} s"
        if sample.cpu_s > (os.cpu_count() or 1) * sample.wall_s + TICKS_S:
            return f"{sample.cpu_s:.3g} s of CPU time in a lap of {sample.wall_s:.3g} s"
    return ""


def understatement(laps: Mapping[int, Sample], usage: Mapping[int, Usage]) -> str:
    """Why most of these laps cannot have taken what they claim, by the CPU time that each took;
    empty if they can, or where that is unknown.

    One lap alone tells nothing.
    """
    impossible = [
        f"{sample.cpu_s:.3g} s of CPU time in a lap that took {usage[number].cpu_s:.3g} s of it"
        for number, sample in laps.items()
        if sample.device_s is None and usage[number].cpu_s > most_cpu_s(sample, usage[number])
    ]
    return impossible[-1] if len(impossible) > max(1, len(laps) / 2) else ""


def most_cpu_s(sample: Sample, usage: Usage) -> float:
    """Seconds that a process may compute for a lap, rehearsals and answer included."""
    rehearsed_s = sample.cpu_s * (1 + usage.rehearsed / sample.iterations)
    most_s = CLAIMED * rehearsed_s + BEFORE_S * sample.iterations
    # half of the faults that have a lap taken again, as its rehearsal and first taking cost less
    if FAULT_S * usage.faults > FAULTING / 2 * sample.cpu_s:
        most_s *= 2
    most_s += ANSWER_S
    # rehearsals go on while faults take more than this share of their time
    cold_s = min(REHEARSALS_S, FAULT_S * usage.faults / COLD)
    most_s += cold_s * cores_used([sample])
    return most_s


def cores_used(samples: Iterable[Sample]) -> float:
    """How many cores these laps claim to have used at once, at least 1."""
    return max([1.0, *(sample.cpu_s / sample.wall_s for sample in samples)])


def run_of(
    planned: Planned,
    part: Part,
    round_: int,
    answer: Finished | Weighed | Failure,
    **fields: Any,
) -> Run:
    """The run of a case, from its process's answer; failed if that would be refused on reading.

    fields: further ones of the run, such as its samples
    """
    about = {"case": planned.case.key, "part": part, "round": round_, **fields}
    try:
        return read_run({**about, **run_fields(answer)})
    except ValueError as error:
        kept = {name: about[name] for name in about if name != "samples"}
        return read_run({**kept, **run_fields(impossible(str(error)))})


def run_fields(answer: Finished | Weighed | Failure) -> dict[str, Any]:
    """The fields of a run that an answer gives."""
    if isinstance(answer, Failure):
        return {
            "outcome": answer.outcome,
            "cause": answer.cause,
            "reason": answer.reason,
            "notes": answer.notes,
        }
    # what is not a number was not measured
    values = {name: value for name, value in answer.values.items() if math.isfinite(value)}
    return {"outcome": Outcome.OK, "values": values, "notes": answer.notes}
