"""What `attnbench sweep --dry-run` prints; nothing is run."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from attnbench.api.measuring import main_reason
from attnbench.cli import console
from attnbench.cli.cluster import shards_line
from attnbench.errors import CannotRun
from attnbench.fleet import split
from attnbench.records import Planned, Request, Shard
from attnbench.render.cases import plan_tables
from attnbench.run.order import Foreseen, foresee
from attnbench.statistics.curves import size_names
from attnbench.units import many


def show_plan(
    plan: Sequence[Planned],
    request: Request,
    *,
    memory_bytes: int | None,
    as_json: bool,
    shards: int | None = None,
    shard: Shard | None = None,
) -> None:
    """Print every case and the whole sweep, or one `shard` of it, with predictions.

    With `shards`, also how long these take. `memory_bytes` is the available memory, if known.
    Raises `CannotRun` if no case of the plan can run, `UsageError` at too many shards.
    """
    if all(planned.refusal for planned in plan):
        refused = foresee(request, plan, memory_bytes).left_out
        raise CannotRun(
            f"none of {many(len(plan), 'case')} can run; {main_reason(plan, refused.values())};"
            " choose other options or mechanisms"
        )
    share = split.share(plan, request, shard) if shard else None
    found = foresee(request, plan, memory_bytes, share)
    line = shards_line(plan, request, shards) if shards else ""
    if as_json:
        whole = {"total_s": found.total_s, "budget_s": request.budget_s}
        rows = [case_row(planned, found) for planned in plan]
        console.data({**whole, "memory_bytes": memory_bytes, "cases": rows})
        return
    for table in plan_tables(plan, request, found, memory_bytes, size_names(plan)):
        console.show(table)
        console.out().print()
    console.out().print(line, end="\n" * bool(line))


def case_row(planned: Planned, found: Foreseen) -> dict[str, Any]:
    """What programs read of a case; what is unknown of a module without a card is null."""
    left_out = found.left_out.get(planned.case.key)
    return {
        **asdict(planned),
        "predicted_s": found.seconds.get(planned.case.key),
        "predicted_bytes": planned.predicted_bytes if planned.declared else None,
        "label": str(planned.case),
        "rounds": found.rounds.get(planned.case.key, 0),
        "left_out": left_out
        and {"outcome": left_out.outcome, "cause": left_out.cause, "reason": left_out.reason},
    }
