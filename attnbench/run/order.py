"""The order of visits: range before precision.

1. Every curve begins, at the shortest length. Then every other case once, cheap ones first: each
   curve goes as far as `RANGE` of the budget. The memory of a case is measured after its first
   visit: a peak is exact and takes one iteration.
2. `WANTED` rounds of whole blocks, then more of the cases with a ratio that is not decided. Where
   the budget is not enough for all, visits come first that narrow a ratio most in their time.
3. What is left of the budget goes to the cases that did not fit into 1, and then to further rounds
   until all ratios are known to the precision requested.

A sweep visits in this order, and a dry run adds up what it would visit.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from statistics import median
from typing import TypeAlias

from attnbench.records import Outcome, Part, Planned, Request, Run
from attnbench.run.agenda import Agenda, blocks
from attnbench.statistics.ratios import so_far

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
    reserve_s = (1 - RANGE) * (agenda.request.budget_s or 0.0)
    yield from first_round(agenda, 0.0, longest=min(agenda.request.lengths))
    yield from first_round(agenda, reserve_s)
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
class Foreseen:
    """What a sweep would do with each case, by its key, if all took as long as predicted."""

    total_s: float  # from the command to the last run
    seconds: Mapping[str, float]  # of one iteration, predicted; of what declares no costs, none
    rounds: Mapping[str, int]  # in how many rounds a case is timed; at least 1
    left_out: Mapping[str, Run]  # why another case is not timed


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
    )
