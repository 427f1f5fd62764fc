"""What a sweep would do, if everything took as long as is predicted before anything has run."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from attnbench.analysis.costs import Costs
from attnbench.records import Block, Mode, Outcome, Part, Planned, Request, Run, Series
from attnbench.running.agenda import Agenda, blocks
from attnbench.running.memory import can_wait
from attnbench.running.order import Visit, next_visit, visits
from attnbench.running.visit_costs import VisitCosts, assumed_rates
from attnbench.running.weighing import is_possible

LOADING_S = 3.0  # loading torch and reading cards, before the budget begins to run
PEAKS_S = 1.5  # measuring the peak rates of the machine


@dataclass(frozen=True, kw_only=True)
class ForeseenFront:
    """How far a mode goes: the longest lengths that some series of a plan are timed at.

    `common` is that of all its series that can run at all, None where these share no length. `far`
    is that of the series which goes furthest.
    """

    mode: Mode
    common: int | None
    far: int


@dataclass(frozen=True, kw_only=True)
class Foreseen:
    """What a sweep would do with each case, by its key, if all took as long as predicted."""

    total_s: float  # from the command to the last run
    seconds: Mapping[str, float]  # of one iteration, predicted; of what declares no costs, none
    rounds: Mapping[str, int]  # in how many rounds a case is timed; at least 1
    left_out: Mapping[str, Run]  # why another case is not timed
    fronts: Sequence[ForeseenFront]  # of each mode of which anything is timed


def foresee(
    request: Request, plan: Sequence[Planned], memory_bytes: int | None, cores: float = 1
) -> Foreseen:
    """Add up the visits of a sweep, or of a shard's cases; without `memory_bytes` all fits.

    With more `cores` than are timed, memory is measured while races do anything but their laps.
    """
    spent_s = 0.0
    beside_s = 0.0  # in which what is measured beside races has run
    beside_races = is_possible(request, cores)
    agenda = Agenda(
        request=request,
        plan=plan,
        memory_bytes=math.inf if memory_bytes is None else memory_bytes,
        clock=lambda: spent_s,
        begun=-PEAKS_S,
    )
    order = visits(agenda)
    visit = next(order, None)
    while visit is not None:
        if beside_races and visit.part is Part.MEMORY and can_wait(agenda, visit.cases[0]):
            agenda.owe(visit.cases[0])
            visit = next_visit(order, ())
            continue
        spent_s += predicted_s(agenda, visit)
        if visit.part is Part.TIME:
            untimed_s = sum(map(agenda.untimed_s, visit.cases))
            beside_s = record_memory_beside_races(agenda, beside_s + untimed_s)
        visit = next_visit(
            order, [dry_run(planned, visit.part, visit.round) for planned in visit.cases]
        )
    spent_s += max(0.0, sum(map(agenda.costs.memory_s, agenda.owed.values())) - beside_s)
    seconds = {p.case.key: agenda.costs.iteration_s(p) for p in agenda.plan if p.declared}
    out = (p for p in agenda.plan if p.refusal or p.case.key in agenda.waiting)
    return Foreseen(
        total_s=LOADING_S + PEAKS_S + spent_s,
        seconds=seconds,
        rounds={key: len(runs) for key, runs in agenda.runs.items() if runs},
        left_out={p.case.key: agenda.skipped_run(p) for p in out},
        fronts=fronts(agenda),
    )


def predicted_s(agenda: Agenda, visit: Visit) -> float:
    """Predicted seconds of a visit."""
    each_s = agenda.visit_s if visit.part is Part.TIME else agenda.costs.memory_s
    return sum(map(each_s, visit.cases))


def record_memory_beside_races(agenda: Agenda, seconds: float) -> float:
    """Record the measurements of memory that end within so many seconds beside races.

    Returns for how many of them the next one has run.
    """
    for planned in list(agenda.owed.values()):
        memory_s = agenda.costs.memory_s(planned)
        if memory_s > seconds:
            return seconds
        seconds -= memory_s
        agenda.record((planned,), (dry_run(planned, Part.MEMORY, 0),))
    return 0.0


def dry_run(planned: Planned, part: Part, round_: int) -> Run:
    """A run that measured nothing."""
    return Run(case=planned.case.key, part=part, round=round_, outcome=Outcome.OK)


def fronts(agenda: Agenda) -> list[ForeseenFront]:
    """How far each mode goes, of what the agenda has timed."""
    timed: dict[Mode, dict[Series, set[int]]] = {}
    for planned in agenda.plan:
        if planned.refusal:
            continue
        workload = planned.case.workload
        lengths = timed.setdefault(workload.mode, {}).setdefault(agenda.series(planned), set())
        if agenda.timed_runs(planned):
            lengths.add(workload.seq_len)
    return [
        ForeseenFront(
            mode=mode,
            common=max(set.intersection(*lengths.values()), default=None),
            far=max(set.union(*lengths.values())),
        )
        for mode, lengths in timed.items()
        if any(lengths.values())
    ]


def seconds_of_blocks(plan: Sequence[Planned], request: Request) -> dict[Block, float]:
    """Predicted seconds of one round of each block, and of its memory."""
    costs = Costs(plan, assumed_rates(request))
    visits = VisitCosts(costs)
    return {
        block: sum(visits.seconds(p, request.settings) + costs.memory_s(p) for p in cases)
        for block, cases in blocks(plan).items()
    }
