"""One plan for several machines: which shard measures which blocks.

A block goes to one shard whole, so that whatever is compared runs on one machine. Every process
divides the same request alike, whatever its limits, and also on a node that lacks the compiler or
package of some form: its cases have their shards everywhere, and where they cannot run this is
stored.
"""

from collections.abc import Mapping, Sequence

from attnbench.errors import UsageError
from attnbench.records import Block, Planned, Request, Shard
from attnbench.running.foresee import foresee, seconds_of_blocks


def split(costs_s: Mapping[Block, float], shards: int) -> list[list[Block]]:
    """The blocks of each shard: longest first, each to the shard with the least work so far.

    Raises `UsageError` if there are fewer blocks than shards.
    """
    if shards > len(costs_s):
        raise UsageError(
            f"{shards} shards: the plan has only {len(costs_s)} blocks (lengths × modes × sizes),"
            f" and a block is measured in one place; ask for at most {len(costs_s)}"
        )
    parts: list[list[Block]] = [[] for _ in range(shards)]
    for block in sorted(costs_s, key=lambda block: (-costs_s[block], block)):
        min(parts, key=lambda part: (sum(costs_s[b] for b in part), len(part))).append(block)
    return parts


def cases_of_shard(
    plan: Sequence[Planned], request: Request, shard: Shard | None
) -> Sequence[Planned]:
    """The cases that a shard measures; without one, all. Raises `UsageError`."""
    if shard is None:
        return plan
    shard_blocks = split(seconds_of_blocks(plan, request), shard.of)[shard.number - 1]
    return tuple(planned for planned in plan if planned.block in shard_blocks)


def makespan_s(plan: Sequence[Planned], request: Request, shards: int) -> float:
    """Predicted seconds of the slowest shard. Raises `UsageError`."""
    shares = (
        cases_of_shard(plan, request, Shard(number, shards)) for number in range(1, shards + 1)
    )
    return max(foresee(request, cases, None).total_s for cases in shares)
