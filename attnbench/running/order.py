"""The order of visits: a first decision, what can be compared, then range, then precision.

0. The first block: the cheapest one of the shortest length. It is repeated at once, in `WANTED`
   rounds, so that something is decided soon.
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
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from statistics import median
from typing import TypeAlias

from attnbench.analysis.statistics.ratios import so_far
from attnbench.records import Block, Mode, Part, Planned, Run, Series
from attnbench.running.agenda import Agenda, blocks
from attnbench.running.memory import races

EARLY = 0.05  # share of the budget in which the first block is repeated at once
EARLY_PAIR = 0.15  # the same where it is a pair of series, so that short budgets decide something
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
    shortest = cheapest_first(agenda, min((block.seq_len for block in agenda.blocks), default=0))
    early_s = 0.0
    for block in shortest[:1]:
        yield from first_round(agenda, 0.0, {block})
        begun_s = agenda.clock()
        yield from repeat_at_once(agenda, block)
        early_s = agenda.clock() - begun_s
    yield from first_round(agenda, 0.0, shortest)
    # repeats that come early leave less for those that come late, not for range
    yield from common_front(agenda, (1 - COMMON) * budget_s - early_s)
    yield from first_round(agenda, (1 - RANGE) * budget_s - early_s)
    yield from further_rounds(agenda, until_decided=True)
    yield from first_round(agenda, 0.0)
    yield from further_rounds(agenda)
    agenda.begin(0)  # by whose settings it is said why something still waits


def next_visit(visits: Visits, runs: Sequence[Run]) -> Visit | None:
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
    untimed = [planned for planned in cases if not agenda.is_done(planned)]
    for group in races(agenda, untimed) if untimed else ():
        runs = yield Visit(round=agenda.round, part=Part.TIME, cases=group)
        agenda.record(group, runs)
    for planned in () if agenda.round else cases:
        if agenda.was_timed(planned) and agenda.lacks_memory(planned):
            runs = yield Visit(round=0, part=Part.MEMORY, cases=(planned,))
            if planned.case.key not in agenda.owed:
                agenda.record((planned,), runs)


def first_round(
    agenda: Agenda, reserve_s: float, within: Collection[Block] | None = None
) -> Visits:
    """Visit what waits for its first round, as far as it leaves `reserve_s` of the budget.

    Cases of the blocks `within`, by default of all, are taken by cost, in steps; in a step they go
    from short to long. Without a budget all are one step.
    """
    agenda.begin(0)
    step_costs = math.inf if agenda.request.budget_s is None else STEP
    while True:
        waiting = agenda.waiting.values()
        cases = [p for p in waiting if within is None or p.block in within]
        if not (possible := agenda.cheapest_within_budget(cases, reserve_s)):
            return
        most_s = step_costs * agenda.cost_s(possible[0])
        step = blocks(planned for planned in possible if agenda.cost_s(planned) <= most_s)
        for block in sorted(step, key=lambda block: block.seq_len):
            if chosen := agenda.cheapest_within_budget(step[block], reserve_s):
                yield from visit(agenda, chosen)


def repeat_at_once(agenda: Agenda, block: Block) -> Visits:
    """Repeat a block in `WANTED` rounds, and on until a series is decided beside all others.

    These visits take at most `EARLY` of the budget. Where it is not enough for so many rounds of
    all series, the cheapest ones of them are repeated. Two are also repeated so often where that
    takes at most `EARLY_PAIR`: fewer rounds decide nothing.
    """
    request = agenda.request
    budget_s = math.inf if request.budget_s is None else request.budget_s
    wanted_rounds = min(WANTED, request.rounds)
    agenda.begin(1)
    cases = sorted(repeatable_in_block(agenda, block), key=agenda.visit_s)
    while len(cases) > 2 and (wanted_rounds - 1) * visits_s(agenda, cases) > EARLY * budget_s:
        cases.pop()
    if (wanted_rounds - 1) * visits_s(agenda, cases) > EARLY_PAIR * budget_s:
        return
    most_s = EARLY * budget_s
    for number in range(1, request.rounds):
        agenda.begin(number)
        cases = [planned for planned in repeatable_in_block(agenda, block) if planned in cases]
        untimed = [planned for planned in cases if not agenda.was_timed(planned)]
        visit_s = visits_s(agenda, untimed)
        if len(cases) < 2 or visit_s > agenda.free_s():
            return
        if number >= wanted_rounds and (visit_s > most_s or is_settled(agenda, block)):
            return
        most_s -= visit_s
        yield from visit(agenda, untimed)


def repeatable_in_block(agenda: Agenda, block: Block) -> list[Planned]:
    """The cases of a block that can be repeated."""
    return [planned for planned in agenda.repeatable_cases() if planned.block == block]


def is_settled(agenda: Agenda, block: Block) -> bool:
    """Whether a series of a block is decided beside all others, or all ratios are precise."""
    precision = agenda.request.precision
    certain, widths, undecided = so_far(agenda.laps())
    certainty = certain.get(block)
    if certainty is not None and precision is not None and certainty.reaches(precision):
        return True
    cases = [(agenda.series(planned), block) for planned in agenda.blocks[block]]
    return any(case in widths and case not in undecided for case in cases)


def visits_s(agenda: Agenda, cases: Iterable[Planned]) -> float:
    """Predicted seconds of one visit to these cases in this round."""
    return sum(map(agenda.visit_s, cases))


def common_front(agenda: Agenda, reserve_s: float) -> Visits:
    """Visit whole blocks, from short to long, as far as they leave `reserve_s` of the budget.

    Modes and sizes are kept level: all of them reach a length before one goes on to the next. Each
    ends by itself at the first block that does not fit. Every second length is enough to know how
    far all can be compared; the others follow, since they cost less.
    """
    if agenda.request.budget_s is None:
        return
    agenda.begin(0)
    left_behind = set[tuple[Series, Mode]]()  # series that the others of a mode do not wait for
    ended = set[Block]()  # modes and sizes of which a block did not fit
    for length in sorted({block.seq_len for block in agenda.blocks})[::2]:
        for block in cheapest_first(agenda, length):
            workload = block._replace(seq_len=0, batch=0)  # a batch has fewer long sequences
            waiting = [p for p in agenda.blocks[block] if p.case.key in agenda.waiting]
            level = [p for p in waiting if (agenda.series(p), block.mode) not in left_behind]
            racing = without_slowest(agenda, level)
            left_behind.update((agenda.series(p), block.mode) for p in level if p not in racing)
            if workload in ended or not racing:
                continue
            if len(agenda.cheapest_within_budget(racing, reserve_s)) < len(racing):
                ended.add(workload)
                continue
            yield from visit(agenda, racing)


def cheapest_first(agenda: Agenda, length: int) -> list[Block]:
    """The blocks of a length: of each mode and of all sizes, by what a visit to them takes."""
    blocks = [block for block in agenda.blocks if block.seq_len == length]
    return sorted(blocks, key=lambda block: sum(map(agenda.cost_s, agenda.blocks[block])))


def without_slowest(agenda: Agenda, cases: Sequence[Planned]) -> list[Planned]:
    """The cases that can run, but for one that would take much longer than all others together.

    Where only two can be compared, none is left out.
    """
    possible = [planned for planned in cases if agenda.reason_to_skip(planned) is None]
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
        chosen = list(blocks(affordable_cases(agenda, until_decided)).values())
        agenda.order_generator().shuffle(chosen)
        for cases in chosen:
            visit_s = visits_s(agenda, cases) + agenda.link_s(cases[0].block)
            if visit_s <= agenda.free_s():
                yield from visit(agenda, cases)
            else:
                agenda.record(cases, ())


def affordable_cases(agenda: Agenda, until_decided: bool) -> Iterable[Planned]:
    """The cases of this round: as many as the budget allows, and is spent best on."""
    left_s = agenda.free_s()
    within: dict[str, Planned] = {}
    for _, planned in sorted(remaining_visits(agenda, until_decided), key=itemgetter(0)):
        visit_s = agenda.visit_s(planned)
        if visit_s <= left_s:
            left_s -= visit_s
            within[planned.case.key] = planned
        else:
            agenda.record((planned,), ())
    return within.values()


def remaining_visits(agenda: Agenda, until_decided: bool) -> Iterator[tuple[float, Planned]]:
    """Every further visit, from this round on, with its seconds over how much it narrows a ratio.

    A ratio is taken to narrow with the root of the number of rounds, the (n + 1)-th of which then
    brings about 1 / n^1.5 of the width after one. A cheap case narrows nothing by itself, so it
    counts as much as the middle of its block.
    """
    precision = agenda.request.precision
    most = agenda.request.rounds
    certain, widths, undecided = so_far(agenda.laps())
    for block, cases in blocks(agenda.repeatable_cases()).items():
        if until_decided and len(cases) == 1:  # it is compared with nothing
            continue
        certainty = certain.get(block)
        if certainty is not None and precision is not None and certainty.reaches(precision):
            continue
        middle_s = median(map(agenda.visit_s, cases))
        for planned in cases:
            case = (agenda.series(planned), block)
            rounds_done = len(agenda.runs[planned.case.key])
            decides = until_decided and rounds_done >= WANTED
            if agenda.was_timed(planned) or (decides and case not in undecided):
                continue
            width = (undecided if decides else widths).get(case, math.inf)
            after_one_round = math.sqrt(rounds_done) * min(max(width, LEAST_WIDTH), 1.0)
            cost_s = max(middle_s, agenda.visit_s(planned))
            for n in range(rounds_done, most):
                yield cost_s * n**1.5 / after_one_round, planned
