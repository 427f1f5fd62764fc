"""The measurements of memory of a sweep: each in a fresh process, beside races or alone.

A peak is exact on any core, so where nothing is timed on a core, the memory of a case is measured
there while races build, warm up and finish. While laps run, that process rests: it is stopped with
all that it has started. What fails there may have failed because of the race, so it is measured
once more, alone; and where a race runs out of memory, the measurement beside it ends and is made
again later. A measurement that needs much memory, or whose need nobody knows, is made alone.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial

from attnbench.devices import find
from attnbench.records import Clock, Outcome, Part, Planned, Request, Run
from attnbench.records.messages import A, Failure, MeasureMemory, ProcessQuestion, Weighed, of_case
from attnbench.running import stopping
from attnbench.running.agenda import Agenda
from attnbench.running.memory import can_wait, fit_together, is_crowded
from attnbench.running.process import Process, ask_fresh
from attnbench.running.race import LEAST_S, Round, SideWork, run_of

LATE = Failure(outcome=Outcome.TIMEOUT, reason="no answer in time beside others; killed")


@dataclass
class Measurement:
    """One that is under way beside races."""

    planned: Planned
    process: Process
    question: MeasureMemory
    begun_s: float  # by the clock of the agenda
    limit_s: float  # that it may run
    rested_s: float = 0.0  # that it has been stopped

    def ran_s(self, now_s: float) -> float:
        """Seconds that it has run until now, without those in which it was stopped."""
        return now_s - self.begun_s - self.rested_s


class Weighings(SideWork, AbstractContextManager["Weighings"]):
    """The measurements of memory of a sweep, beside its races where there are cores for them.

    agenda: the plan, which learns what was measured
    start:  starts the process that measures a series' memory
    store:  called with each run of what was measured beside races
    cores:  on which nothing is timed; none: every measurement is made alone
    """

    def __init__(
        self,
        agenda: Agenda,
        start: Callable[[str], Process],
        store: Callable[..., None],
        cores: Collection[int] = (),
    ) -> None:
        self.agenda = agenda
        self.start = start
        self.store = store
        self.cores = cores
        self.waiting = deque[Planned]()
        self.to_repeat = deque[Planned]()  # those that failed beside others: to be made alone
        self.racing: Sequence[Planned] = ()
        self.under_way: Measurement | None = None
        self.rests = 0  # how many blocks forbid it to run

    def __exit__(self, *error: object) -> None:
        if self.under_way:
            self.under_way.process.end()

    def postpone(self, planned: Planned) -> bool:
        """Take a case whose memory can be measured beside later races; whether it is one."""
        if not self.cores or not can_wait(self.agenda, planned):
            return False
        self.agenda.owe(planned)
        self.waiting.append(planned)
        return True

    @contextmanager
    def while_racing(self, cases: Sequence[Planned]) -> Iterator[None]:
        """Within the block these cases race, and only what fits into memory with them may run."""
        self.racing = cases
        if self.under_way and not self.fits(self.under_way.planned):
            self.finish()
        try:
            yield
        finally:
            self.racing = ()

    def fits(self, planned: Planned) -> bool:
        """Whether a case fits into memory beside those that race."""
        return fit_together(self.agenda, [planned, *self.racing])

    def ask(self, process: Process, question: ProcessQuestion[A], limit_s: float) -> A | Failure:
        """The answer of a process of the race, as `Process.ask` gives it.

        While it is awaited, measurements end and others begin.
        """
        if not self.rests:
            self.advance()
        if self.rests or not self.under_way:
            return process.ask(question, limit_s)
        if failure := process.send(question):
            return failure
        end_s = self.agenda.clock() + limit_s
        while self.under_way and (left_s := end_s - self.agenda.clock()) > 0:
            process.wait(min(left_s, self.left_s(self.under_way)), self.under_way.process)
            if (answer := process.poll(question)) is not None:
                return answer
            self.advance()
        return process.receive(question, max(0.0, end_s - self.agenda.clock()))

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Within the block nothing is measured; what cannot be stopped is ended."""
        self.rests += 1
        begun_s = self.agenda.clock()
        stopped = self.under_way if self.rests == 1 else None
        if stopped and not stopped.process.stop():
            self.give_way()
        try:
            yield
        finally:
            self.rests -= 1
            if stopped and stopped is self.under_way:
                stopped.rested_s += self.agenda.clock() - begun_s
                stopped.process.go_on()

    def give_way(self) -> bool:
        """End what is measured, which is then measured alone; whether anything was."""
        if self.under_way is None:
            return False
        self.under_way.process.end()
        self.to_repeat.append(self.under_way.planned)
        self.under_way = None
        return True

    def advance(self) -> None:
        """Take what has been measured, and begin what is due."""
        if self.under_way:
            self.check_progress(self.under_way)
        if self.under_way or self.to_repeat or self.agenda.left_s() <= 0:
            return
        if planned := next(filter(self.fits, self.waiting), None):
            self.waiting.remove(planned)
            self.begin(planned)

    def begin(self, planned: Planned) -> None:
        """Begin to measure a case."""
        begun_s = self.agenda.clock()
        process = self.start(str(self.agenda.series(planned)))
        process.bind(self.cores)
        question = question_of(planned)
        limit_s = self.limit_s(planned)
        self.under_way = Measurement(planned, process, question, begun_s, limit_s)
        if failure := process.send(question):
            self.end(self.under_way, failure)

    def check_progress(self, under_way: Measurement) -> None:
        """See whether a measurement has ended, or is late."""
        answer = under_way.process.poll(under_way.question)
        if answer is None and self.left_s(under_way) <= 0:
            answer = LATE
        if answer is not None:
            self.end(under_way, answer)

    def end(self, under_way: Measurement, answer: Weighed | Failure) -> None:
        """Store what was measured; what failed is measured again, alone."""
        if isinstance(answer, Failure):
            self.give_way()
            return
        under_way.process.end()
        self.under_way = None
        elapsed_s = under_way.ran_s(self.agenda.clock())
        run = run_of(under_way.planned, Part.MEMORY, 0, answer, elapsed_s=elapsed_s)
        self.store(run)
        self.agenda.record((under_way.planned,), (run,))

    def finish(self) -> None:
        """Wait for what is under way; end it where the budget ends."""
        while self.under_way:
            most_s = min(self.left_s(self.under_way), max(LEAST_S, self.agenda.left_s()))
            self.under_way.process.wait(max(0.0, most_s))
            self.check_progress(self.under_way)
            if self.agenda.left_s() <= 0:
                self.give_way()

    def repeat_failures(self, processes: Round) -> None:
        """Measure alone what failed beside others."""
        while self.to_repeat:
            self.measure_and_store(processes, self.to_repeat.popleft())

    def measure_remaining(self, processes: Round) -> None:
        """Measure whatever no race has left time for, as far as the budget goes."""
        self.finish()
        self.to_repeat.extend(self.waiting)
        self.waiting.clear()
        self.repeat_failures(processes)

    def measure_and_store(self, processes: Round, planned: Planned) -> None:
        """Measure a case alone and store what comes of it."""
        runs = self.measure_alone(processes, planned)
        self.store(*runs)
        self.agenda.record((planned,), runs)

    def measure_alone(self, processes: Round, planned: Planned) -> list[Run]:
        """Measure peaks and counts of a case in a process of its own, unless the budget has ended.

        A profiler that has run makes a process slower. Where memory runs out while processes of the
        round idle, which hold some, as their contexts on a GPU, they end and it is measured again.
        """
        self.finish()
        begun_s = self.agenda.clock()
        if self.agenda.left_s() <= 0:
            return []
        name = str(self.agenda.series(planned))
        processes.observe(f"{name}, memory")
        if is_crowded(self.agenda, planned):
            processes.end(processes.running)
        start = partial(self.start, name)
        answer = ask_fresh(start, question_of(planned), self.limit_s(planned))
        idle = [other for other, process in processes.running.items() if process.alive]
        if isinstance(answer, Failure) and answer.is_out_of_memory and idle:
            processes.end(idle)
            answer = ask_fresh(start, question_of(planned), self.limit_s(planned))
        if isinstance(answer, Failure) and answer.is_timeout and self.agenda.left_s() <= 0:
            return []
        elapsed_s = self.agenda.clock() - begun_s
        run = run_of(planned, Part.MEMORY, 0, answer, elapsed_s=elapsed_s)
        return [self.agenda.with_overtime(planned, run)]

    def limit_s(self, planned: Planned) -> float:
        """Seconds that measuring a case may take."""
        return min(self.agenda.timeout_s(planned), max(LEAST_S, self.agenda.left_s()))

    def left_s(self, under_way: Measurement) -> float:
        """Seconds that a measurement may still run."""
        return under_way.limit_s - under_way.ran_s(self.agenda.clock())


def is_possible(request: Request, cores: float) -> bool:
    """Whether memory can be measured beside races, on a machine with so many cores.

    Not on a GPU: what a process has started there goes on while it is stopped, its memory stays
    taken, and copies of both share the bus.
    """
    timed = 1 if request.settings.clock is Clock.CPU else request.settings.threads
    return cores > timed and not find(request.device).gpus and stopping.is_possible()


def question_of(planned: Planned) -> MeasureMemory:
    """What the process is asked that measures the memory of a case."""
    return MeasureMemory(**of_case(planned.case), filled=planned.filled)
