"""What `attnbench sweep --dry-run` prints; nothing is run."""

from collections.abc import Sequence
from dataclasses import asdict

from attnbench.api.measuring import main_reason
from attnbench.cli import console
from attnbench.cli.cluster import shards_table
from attnbench.errors import CannotRun
from attnbench.fleet import split
from attnbench.records import Planned, Request, Shard
from attnbench.render.cases import plan_tables
from attnbench.run.order import foresee
from attnbench.units import many

PREDICTED = ("predicted_s", "predicted_bytes")  # unknown, null, of a module that declares no costs


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

    With `shards`, also how the sweep is divided. `memory_bytes` is the available memory, if known.
    Raises `CannotRun` if no case of the plan can run.
    """
    if all(planned.refusal for planned in plan):
        refused = foresee(request, plan, memory_bytes).left_out
        raise CannotRun(
            f"none of {many(len(plan), 'case')} can run; {main_reason(plan, refused.values())};"
            " choose other options or mechanisms"
        )
    share = split.share(plan, request, shard) if shard else None
    found = foresee(request, plan, memory_bytes, share)
    units = split.units(plan, request)
    parts = split.split(units, shards) if shards else ()
    if as_json:
        shard_of = {(u.block, u.round): i for i, part in enumerate(parts, 1) for u in part}
        rounds = range(request.rounds if parts else 0)
        left_out = {
            key: {"outcome": run.outcome, "cause": run.cause, "reason": run.reason}
            for key, run in found.left_out.items()
        }
        rows = [
            {
                **asdict(planned),
                **({} if planned.declared else dict.fromkeys(PREDICTED)),
                "label": str(planned.case),
                "rounds": found.rounds.get(planned.case.key, 0),
                "left_out": left_out.get(planned.case.key),
                "shards": [shard_of[planned.block, round_] for round_ in rounds],
            }
            for planned in plan
        ]
        whole = {"total_s": found.total_s, "budget_s": request.budget_s}
        console.data({**whole, "memory_bytes": memory_bytes, "cases": rows})
        return
    tables = plan_tables(plan, request, found, memory_bytes)
    if parts:
        tables.insert(-1, shards_table(units, parts))
    for number, table in enumerate(tables):
        if number:
            console.out().print()
        console.show(table)
