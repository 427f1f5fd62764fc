"""One plan for several machines: which shard measures which rounds of which blocks.

A unit is one round of one block, so that whatever is compared runs on one machine. Units are handed
out longest first, each to the shard with the least work so far of those that have the fewest rounds
of its block: with rounds apart, differences between machines show in the confidence intervals.

Every process divides the same request alike, also on a node that lacks the compiler or package of
some form: its cases have their shards everywhere, and where they cannot run this is stored.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from attnbench.errors import UsageError
from attnbench.records import Block, Planned, Request, Shard
from attnbench.run.agenda import blocks
from attnbench.run.costs import Costs, assumed_rates


class BlockRound(NamedTuple):
    """One round of a block, with its predicted seconds; round 0 also measures memory."""

    block: Block
    round: int
    cost_s: float


Units: TypeAlias = tuple[BlockRound, ...]


def units(plan: Sequence[Planned], request: Request) -> Units:
    """Every round of every block; cases that would exceed the time limit cost nothing."""
    limit_s = math.inf if request.case_timeout_s is None else request.case_timeout_s
    costs, found = Costs.of(plan, assumed_rates(request)), list[BlockRound]()
    for block, cases in blocks(plan).items():
        visits_s = {p: costs.visit_s(p, request.settings) for p in cases}
        run = [planned for planned in cases if visits_s[planned] <= limit_s]
        cost_s, memory_s = sum(visits_s[p] for p in run), sum(map(costs.memory_s, run))
        found += [BlockRound(block, r, cost_s + memory_s * (r == 0)) for r in range(request.rounds)]
    return tuple(found)


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


def makespan_s(plan: Sequence[Planned], request: Request, shards: int) -> float:
    """Predicted seconds of the slowest shard. Raises `UsageError`."""
    return max(sum(unit.cost_s for unit in own) for own in split(units(plan, request), shards))


def share(
    plan: Sequence[Planned], request: Request, shard: Shard
) -> Mapping[Block, tuple[int, ...]]:
    """The rounds of each block that a shard measures, in order. Raises `UsageError`."""
    found: dict[Block, tuple[int, ...]] = {}
    own = split(units(plan, request), shard.of)[shard.number - 1]
    for unit in sorted(own, key=lambda unit: unit.round):
        found[unit.block] = (*found.get(unit.block, ()), unit.round)
    return found
