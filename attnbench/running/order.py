"""The order of visits: what can be compared, then range, then precision.

1. The common front: whole blocks from short to long, so that all series grow together and can be
   compared. They take `COMMON` of the budget, at every second length.
2. The far front: every other case once, cheap ones first, so that each curve goes as far as it can
   within `RANGE` of the budget. The memory of a case is measured after its first visit, or from
   then on beside other visits: a peak is exact and takes one iteration.
3. `WANTED` rounds of whole blocks, then more of the cases with a ratio that is not decided. Where
   the budget is not enough for all, visits come first that narrow a ratio most in their time.
4. What is left of the budget goes to the cases that did not fit into 2, and then to further rounds
   until all ratios are known to the precision requested.

Without a budget 1 and 2 are one step. Each visit is chosen from what is known by then: whoever
makes it, a sweep or a dry run, sends what ran.
"""

import math
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from statistics import median
from typing import TypeAlias

from attnbench.analysis.statistics.ratios import so_far
from attnbench.records import Block, Mode, Part, Planned, Run, Series
from attnbench.running.agenda import Agenda, blocks
from attnbench.running.memory import races

COMMON = 0.45  # share of the budget in which all series of a block grow together
ALONE = 3.0  # times all others of its block that a case of the common front may take
RANGE = 0.75  # share of the budget in which every case is visited once and weighed
STEP = 2.0  # cases of a step cost at most this many times the cheapest one
LEAST_WIDTH = 0.001  # of the interval of a ratio, so that what is exact can be repeated too
WANTED = 3  # rounds of all cases, before some are repeated more than others


@dataclass(frozen=True, kw_only=True)
class Visit:
    """What runs next in a round: cases of a block that race, or one whose memory is measured."""

    round: int
    part: Part
    cases: Sequence[Planned]


# It is sent the runs of each visit: one of each case, but for those that the budget cut off, and
# for those of memory that is measured beside races, whose runs are recorded as they end.
Visits: TypeAlias = Generator[Visit, Sequence[Run], None]


def visits(agenda: Agenda) -> Visits:
    """Every visit of a sweep, each chosen after what ran in the one before is recorded."""
    budget_s = agenda.request.budget_s or 0.0
    yield from first_round(agenda, 0.0, longest=min(agenda.request.lengths))
    yield from common_front(agenda, (1 - COMMON) * budget_s)
    yield from first_round(agenda, (1 - RANGE) * budget_s)
    yield from further_rounds(agenda, until_decided=True)
    yield from first_round(agenda, 0.0)
    yield from further_rounds(agenda)
    agenda.begin(0)  # by whose settings it is said why something still waits


def after(visits: Visits, runs: Sequence[Run]) -> Visit | None:
    """The next visit, now that these are the runs of the one before; None if it was the last."""
    try:
        return visits.send(runs)
    except StopIteration:
        return None


def visit(agenda: Agenda, cases: Sequence[Planned]) -> Visits:
    """Visit cases of one block: they race, and what was never weighed is weighed after its first.

    What was timed in this round does not race again, but as a link between races.
    """
    agenda.take(cases)
    missing = [planned for planned in cases if not agenda.is_done(planned)]
    for together in races(agenda, missing) if missing else ():
        runs = yield Visit(round=agenda.round, part=Part.TIME, cases=together)
        agenda.record(together, runs)
    for planned in () if agenda.round else cases:
        if agenda.was_timed(planned) and agenda.lacks_memory(planned):
            runs = yield Visit(round=0, part=Part.MEMORY, cases=(planned,))
            if planned.case.key not in agenda.owed:
                agenda.record((planned,), runs)


def first_round(agenda: Agenda, reserve_s: float, longest: float = math.inf) -> Visits:
    """Visit what waits for its first round, as far as it leaves `reserve_s` of the budget.

    Cases up to the `longest` length are taken by cost, in steps; within a step they go from short
    to long. Without a budget all are one step.
    """
    agenda.begin(0)
    step_costs = math.inf if agenda.request.budget_s is None else STEP
    while True:
        cases = [p for p in agenda.waiting.values() if p.block.seq_len <= longest]
        if not (possible := agenda.fitting(cases, reserve_s)):
            return
        most_s = step_costs * agenda.cost_s(possible[0])
        step = blocks(planned for planned in possible if agenda.cost_s(planned) <= most_s)
        for block in sorted(step, key=lambda block: block.seq_len):
            if chosen := agenda.fitting(step[block], reserve_s):
                yield from visit(agenda, chosen)


def common_front(agenda: Agenda, reserve_s: float) -> Visits:
    """Visit whole blocks, from short to long, as far as they leave `reserve_s` of the budget.

    Modes and sizes are kept level: all of them reach a length before one goes on to the next. Each
    ends by itself at the first block that does not fit. Every second length is enough to know how
    far all can be compared; the others follow, since they cost less.
    """
    if agenda.request.budget_s is None:
        return
    agenda.begin(0)
    behind = set[tuple[Series, Mode]]()  # series that the others of a mode do not wait for
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
            yield from visit(agenda, together)


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


def further_rounds(agenda: Agenda, until_decided: bool = False) -> Visits:
    """Repeat the cases that were timed, block by block in random order.

    They are repeated until all their ratios are precise, or only until these are decided. A round
    has the next visit of each case that has any within the budget: of all further visits those that
    narrow a ratio most in their time.
    """
    for number in range(1, agenda.request.rounds):
        agenda.begin(number)
        chosen = list(blocks(affordable(agenda, until_decided)).values())
        agenda.draw().shuffle(chosen)
        for cases in chosen:
            visit_s = sum(map(agenda.visit_s, cases)) + agenda.link_s(cases[0].block)
            if visit_s <= agenda.free_s():
                yield from visit(agenda, cases)
            else:
                agenda.record(cases, ())


def affordable(agenda: Agenda, until_decided: bool) -> Iterable[Planned]:
    """The cases of this round: as many as the budget allows, and is spent best on."""
    left_s = agenda.free_s()
    within: dict[str, Planned] = {}
    for _, planned in sorted(due(agenda, until_decided), key=itemgetter(0)):
        visit_s = agenda.visit_s(planned)
        if visit_s <= left_s:
            left_s -= visit_s
            within[planned.case.key] = planned
        else:
            agenda.record((planned,), ())
    return within.values()


def due(agenda: Agenda, until_decided: bool) -> Iterator[tuple[float, Planned]]:
    """Every further visit, from this round on, with its seconds over how much it narrows a ratio.

    A ratio is taken to narrow with the root of the number of rounds, the (n + 1)-th of which then
    brings about 1 / n^1.5 of the width after one. A cheap case narrows nothing by itself, so it
    counts as much as the middle of its block.
    """
    precision = agenda.request.precision
    most = agenda.request.rounds
    certain, widths, undecided = so_far(agenda.laps())
    for block, cases in blocks(agenda.repeatable()).items():
        if until_decided and len(cases) == 1:  # it is compared with nothing
            continue
        known = certain.get(block)
        if known is not None and precision is not None and known.reaches(precision):
            continue
        middle_s = median(map(agenda.visit_s, cases))
        for planned in cases:
            case = (agenda.series(planned), block)
            done = len(agenda.runs[planned.case.key])
            further = until_decided and done >= WANTED
            if agenda.was_timed(planned) or (further and case not in undecided):
                continue
            width = (undecided if further else widths).get(case, math.inf)
            after_one_round = math.sqrt(done) * min(max(width, LEAST_WIDTH), 1.0)
            cost_s = max(middle_s, agenda.visit_s(planned))
            for n in range(done, most):
                yield cost_s * n**1.5 / after_one_round, planned
