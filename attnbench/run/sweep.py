"""The loop of a sweep: it visits blocks in the order of `run.order` and stores every outcome.

A block is all series at one mode, length and sizes; in a visit, cases of a block race. The memory
of a case is measured after its first race. Processes and the clock are given, so that tests can
replace them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TypeAlias

from attnbench.records import Block, Cause, Part, Planned, Run
from attnbench.records.messages import Build, Failure, MeasureMemory, Weighed, of_case
from attnbench.run import order
from attnbench.run.agenda import Agenda
from attnbench.run.pace import Pace
from attnbench.run.process import Process, ask_fresh
from attnbench.run.race import CUT_OFF, LEAST_S, Entry, Round, run_of, turns

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


def sweep(
    agenda: Agenda,
    start: Callable[..., Process],
    store: Callable[..., None],
    *,
    pace: Pace | None = None,
    observe: Callable[[Progress], None] = lambda progress: None,
    observe_block: ObserveBlock = lambda block, series, runs: None,
) -> None:
    """Make every visit, then store why the cases that still wait were left out.

    `start` starts a process for a series, to measure memory if `measures_memory`, otherwise time;
    those of the same `round_` have the same memory layout. `store` is called with runs as they end.
    Without a `pace`, the speed of the core is unknown. Ends early, without an error, when the
    budget is spent.
    """
    store(*(agenda.left_out(p) for p in agenda.plan if p.refusal and not agenda.is_done(p)))
    for round_, visits in groupby(order.visits(agenda), key=itemgetter(0)):
        started = partial(start, round_=round_)
        with Round(started, agenda.draw(), agenda.clock, pace, agenda.left_s) as processes:
            for _, cases in visits:
                block = cases[0].block
                processes.observe = partial(shown, agenda, block, observe)
                missing = [planned for planned in cases if not agenda.is_done(planned)]
                for together in agenda.races(missing) if missing else ():
                    store(*race(agenda, processes, together))
                if series := [agenda.series(p) for p in missing if agenda.was_timed(p)]:
                    observe_block(block, series, agenda.runs_of(block))
                for planned in cases if round_ == 0 else ():
                    if agenda.was_timed(planned) and agenda.lacks_memory(planned):
                        store(*weigh(agenda, processes, planned))
    agenda.round = 0
    for planned in agenda.waiting.values():
        run = agenda.left_out(planned)
        agenda.over_budget |= run.cause is Cause.BUDGET
        if not agenda.is_done(planned):
            store(run)


def race(agenda: Agenda, processes: Round, cases: Sequence[Planned]) -> list[Run]:
    """Race cases that fit into memory together, and learn from their runs."""
    names = {agenda.series(planned): planned for planned in cases}
    builds = {
        name: Build(
            **of_case(planned.case),
            **agenda.settings.worker_settings,
            filled=planned.filled,
            suspicious=agenda.is_suspicious(planned),
        )
        for name, planned in names.items()
    }
    if any(map(agenda.is_crowded, cases)):
        processes.end(processes.running.keys() - names.keys())
    entries = processes.race(
        builds,
        lambda times: {name: turns(each_s, agenda.settings) for name, each_s in times.items()},
        lambda name, wall_s: agenda.timeout_s(names[name], wall_s),
        first_lap=agenda.next_lap(cases[0].block),
        again_alone=True,
    )
    if agenda.keep_too_much(cases):
        processes.end(processes.running)
    ran = {names[name]: entry for name, entry in entries.items() if entry.failed is not CUT_OFF}
    agenda.waiting |= {p.case.key: p for p in cases if p not in ran}
    return [agenda.learn(p, run_of_race(agenda, p, entry)) for p, entry in ran.items()]


def run_of_race(agenda: Agenda, planned: Planned, entry: Entry) -> Run:
    """The run of one case."""
    return run_of(
        planned,
        Part.TIME,
        agenda.round,
        entry.ending,
        samples=tuple(sample._replace(lap=lap) for lap, sample in entry.laps.items()),
        elapsed_s=entry.elapsed_s,
    )


def weigh(agenda: Agenda, processes: Round, planned: Planned) -> list[Run]:
    """Measure peaks and counts of a case, in a process of its own, unless the budget has ended.

    A profiler that has run makes a process slower.
    """
    name, begun, left_s = agenda.series(planned), agenda.clock(), agenda.left_s()
    answer: Weighed | Failure = CUT_OFF
    if left_s > 0:
        processes.observe(f"{name}, memory")
        if agenda.is_crowded(planned):
            processes.end(processes.running)
        question = MeasureMemory(**of_case(planned.case), filled=planned.filled)
        limit_s = min(agenda.timeout_s(planned), max(LEAST_S, left_s))
        start = partial(processes.start, name, measures_memory=True)
        answer = ask_fresh(start, question, limit_s)
    late = isinstance(answer, Failure) and answer.is_timeout and agenda.left_s() <= 0
    if answer is CUT_OFF or late:
        agenda.over_budget = True
        return []
    run = run_of(planned, Part.MEMORY, 0, answer, elapsed_s=agenda.clock() - begun)
    return [agenda.learn(planned, run)]


def shown(agenda: Agenda, block: Block, observe: Callable[[Progress], None], running: str) -> None:
    """Report what runs now."""
    done = sum(map(len, agenda.runs.values()))
    observe(Progress(done, block.mode, block.seq_len, running, agenda.round, agenda.left_s()))
