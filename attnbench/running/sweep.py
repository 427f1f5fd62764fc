"""The loop of a sweep: it makes visits in the order of `running.order` and stores every outcome.

A block is all series at one mode, length and sizes; in a visit, cases of a block race. The memory
of a case is measured after its first race, or beside later ones. Processes and the clock are given,
so that tests can replace them.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from attnbench.records import Block, Outcome, Part, Planned, Run
from attnbench.records.messages import Build, of_case
from attnbench.running import order
from attnbench.running.agenda import Agenda
from attnbench.running.memory import is_crowded, keep_too_much
from attnbench.running.order import Visit
from attnbench.running.pace import Pace
from attnbench.running.process import Process
from attnbench.running.race import CUT_OFF, Round, run_of, turns
from attnbench.running.weighing import Weighings

# Called with a block, the series just timed, and the runs of each series timed so far, by round.
ObserveBlock: TypeAlias = Callable[[Block, Sequence[str], Mapping[str, tuple[Run, ...]]], None]


@dataclass(frozen=True)
class Progress:
    """What is happening now; `left_s` is left of the budget, infinite without one."""

    done: int  # runs that timed a case
    mode: str
    seq_len: int
    running: str  # the series whose turn it is
    round: int
    left_s: float


def make_visits(
    agenda: Agenda,
    start: Callable[..., Process],
    store: Callable[..., None],
    *,
    pace: Pace | None = None,
    spare: Collection[int] = (),
    observe: Callable[[Progress], None] = lambda progress: None,
    observe_block: ObserveBlock = lambda block, series, runs: None,
) -> None:
    """Make every visit, then store why the cases that still wait were left out.

    Ends early, without an error, when the budget is spent.

    agenda:        the plan, which learns what ran
    start:         starts a process for a series, to measure memory if `measures_memory`, otherwise
                   time; those of the same `round_` have the same memory layout
    store:         called with runs as they end
    pace:          tells the speed of the core; None: it is unknown
    spare:         cores on which memory is measured beside races; none: it is measured alone
    observe:       called whenever another process has its turn
    observe_block: called whenever series of a block have been timed
    """
    store(*(agenda.skipped_run(p) for p in agenda.plan if p.refusal and not agenda.is_done(p)))
    visits = order.visits(agenda)
    visit = next(visits, None)
    weigher = partial(start, round_=0, measures_memory=True)
    weighings = Weighings(agenda, weigher, store, spare)
    with weighings, ExitStack() as under_way:
        number = None
        while visit is not None:
            if visit.round != number:
                under_way.close()  # the processes of a round end before those of another start
                number = visit.round
                starts = partial(start, round_=number)
                how = (agenda.clock, pace, agenda.left_s, weighings)
                processes = Round(starts, agenda.order_generator(), *how)
                under_way.enter_context(processes)
            block = visit.cases[0].block
            processes.observe = partial(report_progress, agenda, block, observe)
            cases = {planned.case.key: planned for planned in visit.cases}
            untimed = {key for key, planned in cases.items() if not agenda.is_done(planned)}
            runs = make_visit(agenda, processes, visit, weighings)
            store(*(agenda.with_earlier_laps(cases[run.case], run) for run in runs))
            visit = order.next_visit(visits, runs)
            timed = [run.case for run in runs if run.outcome is Outcome.OK and run.case in untimed]
            if timed:
                series = [str(agenda.series(cases[key])) for key in timed]
                runs_so_far = {str(name): rounds for name, rounds in agenda.runs_of(block).items()}
                observe_block(block, series, runs_so_far)
            weighings.repeat_failures(processes)
            if visit is None:
                weighings.measure_remaining(processes)
    store(*(agenda.skipped_run(p) for p in agenda.waiting.values() if not agenda.is_done(p)))


def make_visit(
    agenda: Agenda, processes: Round, visit: Visit, weighings: Weighings
) -> Sequence[Run]:
    """Make a visit, and return its runs.

    There is none of a case that the budget cut off, or whose run comes later.
    """
    if visit.part is Part.TIME:
        with weighings.while_racing(visit.cases):
            return race(agenda, processes, visit.cases)
    (planned,) = visit.cases
    return () if weighings.postpone(planned) else weighings.measure_alone(processes, planned)


def race(agenda: Agenda, processes: Round, cases: Sequence[Planned]) -> list[Run]:
    """Race cases that fit into memory together."""
    names = {str(agenda.series(planned)): planned for planned in cases}
    if any(is_crowded(agenda, planned) for planned in cases):
        processes.end(processes.running.keys() - names.keys())
    entries = processes.race(
        {name: build(agenda, planned) for name, planned in names.items()},
        lambda times: {name: turns(each_s, agenda.settings) for name, each_s in times.items()},
        lambda name, wall_s: agenda.timeout_s(names[name], wall_s),
        first_lap=agenda.next_lap(cases[0].block),
        again_alone=True,
    )
    if keep_too_much(agenda, cases):
        processes.end(processes.running)
    runs = {
        name: run_of(
            names[name],
            Part.TIME,
            agenda.round,
            entry.ending,
            samples=tuple(sample._replace(lap=lap) for lap, sample in entry.laps.items()),
            elapsed_s=entry.elapsed_s,
        )
        for name, entry in entries.items()
        if entry.failure is not CUT_OFF
    }
    return [agenda.with_overtime(names[name], run) for name, run in runs.items()]


def build(agenda: Agenda, planned: Planned) -> Build:
    """What a process is to build for a case, and how it is to be measured."""
    return Build(
        **of_case(planned.case),
        **agenda.settings.worker_settings,
        filled=planned.filled,
        suspicious=agenda.is_suspicious(planned),
    )


def report_progress(
    agenda: Agenda, block: Block, observe: Callable[[Progress], None], running: str
) -> None:
    """Report what runs now."""
    done = sum(map(len, agenda.runs.values()))
    observe(Progress(done, block.mode, block.seq_len, running, agenda.round, agenda.left_s()))
