"""The order of visits: what can be compared, then range, then precision.

1. The common front: whole blocks from short to long, so that all series grow together and can be
   compared. They take `COMMON` of the budget, at every second length.
2. The far front: every other case once, cheap ones first, so that each curve goes as far as it can
   within `RANGE` of the budget. The memory of a case is measured after its first visit: a peak is
   exact and takes one iteration.
3. `WANTED` rounds of whole blocks, then more of the cases with a ratio that is not decided. Where
   the budget is not enough for all, visits come first that narrow a ratio most in their time.
4. What is left of the budget goes to the cases that did not fit into 2, and then to further rounds
   until all ratios are known to the precision requested.

Without a budget 1 and 2 are one step. A sweep visits in this order, and a dry run adds up what it
would visit.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from statistics import median
from typing import TypeAlias

from attnbench.records import Block, Mode, Outcome, Part, Planned, Request, Run
from attnbench.run.agenda import Agenda, blocks
from attnbench.statistics.ratios import so_far

COMMON = 0.45  # share of the budget in which all series of a block grow together
ALONE = 3.0  # times all others of its block that a case of the common front may take
RANGE = 0.75  # share of the budget in which every case is visited once and weighed
STEP = 2.0  # cases of a step cost at most this many times the cheapest one
LEAST_WIDTH = 0.001  # of the interval of a ratio, so that what is exact can be repeated too
LOADING_S = 3.0  # loading torch and reading cards, before the budget begins to run
PEAKS_S = 1.5  # measuring the peak rates of the machine
WANTED = 3  # rounds of all cases, before some are repeated more than others

# A round, and cases of one block that race in it, and whose memory is measured if it is the first.
Visit: TypeAlias = tuple[int, Sequence[Planned]]


def visits(agenda: Agenda) -> Iterator[Visit]:
    """Every visit of a sweep, each chosen after the one before it, from what is known by then."""
    budget_s = agenda.request.budget_s or 0.0
    yield from first_round(agenda, 0.0, longest=min(agenda.request.lengths))
    yield from common_front(agenda, (1 - COMMON) * budget_s)
    yield from first_round(agenda, (1 - RANGE) * budget_s)
    yield from further_rounds(agenda, until_decided=True)
    yield from first_round(agenda, 0.0)
    yield from further_rounds(agenda)


def first_round(agenda: Agenda, reserve_s: float, longest: float = math.inf) -> Iterator[Visit]:
    """Visit what waits for its first round, as far as it leaves `reserve_s` of the budget.

    Cases up to the `longest` length are taken by cost, in steps; within a step they go from short
    to long. Without a budget all are one step.
    """
    agenda.round = 0
    step_costs = math.inf if agenda.request.budget_s is None else STEP
    while True:
        cases = [p for p in agenda.waiting.values() if p.block.seq_len <= longest]
        if not (possible := agenda.fitting(cases, reserve_s)):
            return
        most_s = step_costs * agenda.cost_s(possible[0])
        step = blocks(planned for planned in possible if agenda.cost_s(planned) <= most_s)
        for block in sorted(step, key=lambda block: block.seq_len):
            if chosen := agenda.fitting(step[block], reserve_s):
                for planned in chosen:
                    del agenda.waiting[planned.case.key]
                yield 0, chosen


def common_front(agenda: Agenda, reserve_s: float) -> Iterator[Visit]:
    """Visit whole blocks, from short to long, as far as they leave `reserve_s` of the budget.

    Modes and sizes are kept level: all of them reach a length before one goes on to the next. Each
    ends by itself at the first block that does not fit. Every second length is enough to know how
    far all can be compared; the others follow, since they cost less.
    """
    if agenda.request.budget_s is None:
        return
    agenda.round = 0
    behind = set[tuple[str, Mode]]()  # series that the others of a mode do not wait for
    ended = set[Block]()  # modes and sizes of which a block did not fit
    for length in sorted({block.seq_len for block in agenda.blocks})[::2]:
        for block in cheapest_first(agenda, length):
            workload = block._replace(seq_len=0, batch=0)  # a batch has fewer long sequences
            waiting = [p for p in agenda.blocks[block] if p.case.key in agenda.waiting]
            level = [p for p in waiting if (agenda.series(p), block.mode) not in behind]
            together = without_slow(agenda, level)
            behind.update((agenda.series(p), block.mode) for p in level if p not in together)
            if workload in ended or not together:
                continue
            if len(agenda.fitting(together, reserve_s)) < len(together):
                ended.add(workload)
                continue
            for planned in together:
                del agenda.waiting[planned.case.key]
            yield 0, together


def cheapest_first(agenda: Agenda, length: int) -> list[Block]:
    """The blocks of a length: of each mode and of all sizes, by what a visit to them takes."""
    blocks = [block for block in agenda.blocks if block.seq_len == length]
    return sorted(blocks, key=lambda block: sum(map(agenda.cost_s, agenda.blocks[block])))


def without_slow(agenda: Agenda, cases: Sequence[Planned]) -> list[Planned]:
    """The cases that can run, but for one that would take much longer than all others together.

    Where only two can be compared, none is left out.
    """
    possible = [planned for planned in cases if agenda.limit(planned) is None]
    costs = {planned.case.key: agenda.cost_s(planned) for planned in possible}
    while len(possible) > 2:
        slowest = max(possible, key=lambda planned: costs[planned.case.key])
        others_s = sum(costs[p.case.key] for p in possible if p is not slowest)
        if costs[slowest.case.key] <= ALONE * others_s:
            break
        possible.remove(slowest)
    return possible


def further_rounds(agenda: Agenda, until_decided: bool = False) -> Iterator[Visit]:
    """Repeat the cases that were timed, block by block in random order.

    They are repeated until all their ratios are precise, or only until these are decided. A round
    has the next visit of each case that has any within the budget: of all further visits those that
    narrow a ratio most in their time.
    """
    for number in range(1, agenda.request.rounds):
        agenda.round = number
        left_s, within = agenda.left_s(), dict[str, Planned]()
        for _, planned in sorted(due(agenda, until_decided), key=itemgetter(0)):
            cost_s = agenda.visit_s(planned)
            if cost_s <= left_s:
                left_s -= cost_s
                within[planned.case.key] = planned
            else:
                agenda.over_budget = True
        chosen = list(blocks(within.values()).values())
        agenda.draw().shuffle(chosen)
        for cases in chosen:
            if sum(map(agenda.visit_s, cases)) + agenda.link_s(cases[0].block) <= agenda.left_s():
                yield number, cases
            else:
                agenda.over_budget = True


def due(agenda: Agenda, until_decided: bool) -> Iterator[tuple[float, Planned]]:
    """Every further visit, from this round on, with its seconds over how much it narrows a ratio.

    A ratio is taken to narrow with the root of the number of rounds, the (n + 1)-th of which then
    brings about 1 / n^1.5 of the width after one. A cheap case narrows nothing by itself, so it
    counts as much as the middle of its block.
    """
    precision, most = agenda.request.precision, agenda.request.rounds
    certain, widths, undecided = so_far(agenda.laps())
    for block, cases in blocks(agenda.repeatable()).items():
        if until_decided and len(cases) == 1:  # it is compared with nothing
            continue
        known = certain.get(block)
        if known is not None and precision is not None and known.reaches(precision):
            continue
        middle_s = median(map(agenda.visit_s, cases))
        for planned in cases:
            case, done = (agenda.series(planned), block), len(agenda.runs[planned.case.key])
            further = until_decided and done >= WANTED
            if agenda.was_timed(planned) or (further and case not in undecided):
                continue
            width = (undecided if further else widths).get(case, math.inf)
            after_one_round = math.sqrt(done) * min(max(width, LEAST_WIDTH), 1.0)
            cost_s = max(middle_s, agenda.visit_s(planned))
            for n in range(done, most):
                yield cost_s * n**1.5 / after_one_round, planned


@dataclass(frozen=True, kw_only=True)
class Front:
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
    fronts: Sequence[Front]  # of each mode of which anything is timed


def foresee(request: Request, plan: Sequence[Planned], memory_bytes: int | None) -> Foreseen:
    """Add up the visits of a sweep, or of a shard's cases; without `memory_bytes` all fits."""
    spent_s = 0.0
    agenda = Agenda(
        request=request,
        plan=plan,
        memory_bytes=math.inf if memory_bytes is None else memory_bytes,
        clock=lambda: spent_s,
        begun=-PEAKS_S,
    )
    for round_, cases in visits(agenda):
        spent_s += agenda.link_s(cases[0].block) + sum(map(agenda.cost_s, cases))
        for planned in cases:
            key = planned.case.key
            run = Run(case=key, part=Part.TIME, round=round_, outcome=Outcome.OK)
            agenda.runs[key][round_] = run
            agenda.weighed.add(key)
    seconds = {p.case.key: agenda.costs.iteration_s(p) for p in agenda.plan if p.declared}
    out = (p for p in agenda.plan if p.refusal or p.case.key in agenda.waiting)
    return Foreseen(
        total_s=LOADING_S + PEAKS_S + spent_s,
        seconds=seconds,
        rounds={key: len(runs) for key, runs in agenda.runs.items() if runs},
        left_out={p.case.key: agenda.left_out(p) for p in out},
        fronts=fronts(agenda),
    )


def fronts(agenda: Agenda) -> list[Front]:
    """How far each mode goes, of what the agenda has timed."""
    timed: dict[Mode, dict[str, set[int]]] = {}
    for planned in agenda.plan:
        if planned.refusal:
            continue
        workload = planned.case.workload
        lengths = timed.setdefault(workload.mode, {}).setdefault(agenda.series(planned), set())
        if agenda.timed(planned):
            lengths.add(workload.seq_len)
    return [
        Front(
            mode=mode,
            common=max(set.intersection(*lengths.values()), default=None),
            far=max(set.union(*lengths.values())),
        )
        for mode, lengths in timed.items()
        if any(lengths.values())
    ]
