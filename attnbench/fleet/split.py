"""One plan for several machines: which shard measures which rounds of which blocks.

A unit is one round of one block, so that whatever is compared runs on one machine. Units are handed
out longest first, each to the shard with the least work so far of those that have the fewest rounds
of its block: with rounds apart, differences between machines show in the confidence intervals.

The same plan is divided alike in every process, but not every node makes the same plan of a
request: a form may run on one and lack its compiler or package on another. A digest of the whole
division detects such nodes.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from attnbench.errors import UsageError
from attnbench.records import Block, Planned, Request, Shard, canonical
from attnbench.run.agenda import blocks
from attnbench.run.costs import Costs
from attnbench.store.schema import digest

Units: TypeAlias = tuple["BlockRound", ...]


class BlockRound(NamedTuple):
    """One round of a block, with its predicted seconds; round 0 also measures memory."""

    block: Block
    round: int
    cost_s: float


def units(plan: Sequence[Planned], request: Request) -> list[BlockRound]:
    """Every round of every block; cases that cannot run, or would take too long, cost nothing."""
    found = []
    for block, cases in blocks(plan).items():
        visits, costs = visits_s(cases, request), Costs.of(cases)
        memory_s = sum(costs.memory_s(p) for p in cases if p.case.key in visits)
        cost_s = sum(visits.values())
        found += [BlockRound(block, r, cost_s + memory_s * (r == 0)) for r in range(request.rounds)]
    return found


def visits_s(plan: Sequence[Planned], request: Request) -> dict[str, float]:
    """Predicted seconds of a visit to each case that can run within the time limit, by its key."""
    limit_s = math.inf if request.case_timeout_s is None else request.case_timeout_s
    costs = Costs.of(plan)
    visits = {p.case.key: costs.visit_s(p, request.settings) for p in plan if not p.refusal}
    return {key: visit_s for key, visit_s in visits.items() if visit_s <= limit_s}


def split(units: Sequence[BlockRound], shards: int) -> tuple[Units, ...]:
    """The units of each shard. Raises `UsageError` if there are fewer units than shards."""
    if shards > len(units):
        raise UsageError(
            f"{shards} shards: the plan has only {len(units)} units (rounds × lengths × modes);"
            " ask for fewer shards or more rounds"
        )
    parts: list[list[BlockRound]] = [[] for _ in range(shards)]
    loads_s = [0.0] * shards
    held: Counter[tuple[int, Block]] = Counter()
    for unit in sorted(units, key=lambda unit: (-unit.cost_s, unit.block, unit.round)):
        ranks = [(held[i, unit.block], loads_s[i], len(parts[i])) for i in range(shards)]
        chosen = ranks.index(min(ranks))
        parts[chosen].append(unit)
        loads_s[chosen] += unit.cost_s
        held[chosen, unit.block] += 1
    return tuple(map(tuple, parts))


def rounds(units: Iterable[BlockRound]) -> Mapping[Block, tuple[int, ...]]:
    """The rounds of each block, in order."""
    found: dict[Block, tuple[int, ...]] = {}
    for unit in sorted(units, key=lambda unit: unit.round):
        found[unit.block] = (*found.get(unit.block, ()), unit.round)
    return found


def total_s(units: Iterable[BlockRound]) -> float:
    """Predicted seconds of the units, one after another."""
    return math.fsum(unit.cost_s for unit in units)


def makespan_s(parts: Iterable[Units]) -> float:
    """Predicted seconds of the slowest shard."""
    return max(map(total_s, parts))


def share(
    plan: Sequence[Planned], request: Request, shard: Shard
) -> Mapping[Block, tuple[int, ...]]:
    """The rounds of each block that a shard measures. Raises `UsageError`."""
    return rounds(split(units(plan, request), shard.of)[shard.number - 1])


def division(plan: Sequence[Planned], request: Request, shards: int) -> str:
    """A digest of what each shard measures and of the cases that can run. Raises `UsageError`.

    Costs enter only through what they decide, since nodes may round them differently.
    """
    parts = split(units(plan, request), shards)
    places = [[(unit.block, unit.round) for unit in part] for part in parts]
    can_run = sorted(planned.case.key for planned in plan if not planned.refusal)
    return digest(canonical([places, can_run]).encode())
