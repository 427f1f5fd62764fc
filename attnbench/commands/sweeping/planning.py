"""What `attnbench sweep` does without measuring: `--dry-run` and `--trace`."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from attnbench.analysis.statistics.curves import size_names
from attnbench.commands import console
from attnbench.commands.sweeping import on_cluster
from attnbench.commands.sweeping.asked import Asked
from attnbench.commands.sweeping.cluster.folder import script
from attnbench.devices.cgroups import cores
from attnbench.devices.finding import find
from attnbench.errors import CannotRun, UsageError
from attnbench.records import Case, Planned, Request
from attnbench.records.messages import Failure, Trace, of_case
from attnbench.records.storage import output
from attnbench.records.units import many, seconds
from attnbench.report.cases import plan_data, plan_table, plan_total
from attnbench.running import shards
from attnbench.running.foresee import foresee
from attnbench.running.pool import Pool
from attnbench.running.session import first_reason


def foretell(
    asked: Asked, request: Request, plan: Sequence[Planned], as_json: bool = False
) -> None:
    """Print every case and the whole sweep, or one shard of it, with predictions.

    Of a sweep on a cluster also the script of its jobs, but not as JSON. Raises `CannotRun` if no
    case of the plan can run, `UsageError` at too many shards.
    """
    on = asked.where.on
    shard = asked.shard
    divided = shard.of if shard else asked.where.shards
    memory_bytes = None if on else find(request.device).memory_bytes()
    own = shards.share(plan, request, shard)
    found = foresee(request, own, memory_bytes, 1 if on else cores())
    if all(planned.refusal for planned in plan):
        raise CannotRun(
            f"none of {many(len(plan), 'case')} can run;"
            f" {first_reason(plan, found.left_out.values())}; choose other options or mechanisms"
        )
    if as_json:
        console.data(plan_data(plan, request, found, memory_bytes))
        return
    said = [plan_total(plan, request, found, memory_bytes)]
    if divided:
        slowest, alone = (seconds(shards.makespan_s(plan, request, n)) for n in (divided, 1))
        said.append(
            f"In {many(divided, 'shard')} of whole blocks, the slowest is predicted to take"
            f" {slowest}, everything in one place {alone}."
        )
    console.show(plan_table(plan, request, found, size_names(plan)))
    console.out().print("", *said, sep="\n")
    if on and divided:
        print(script(asked.folder, divided, on_cluster.command(asked.folder)))


def trace(
    wanted: str, plan: Sequence[Planned], request: Request, server: Pool, folder: Path
) -> None:
    """Write the trace of a case of the plan into the folder; nothing is timed.

    Raises `UsageError` if `wanted` is not one case of the plan, `CannotRun` if it does not run.
    """
    found = [planned for planned in plan if wanted in labels(planned.case)]
    if len(found) != 1:
        like = found or [each for each in plan if wanted in str(each.case)] or plan
        known = Counter(label for each in plan for label in labels(each.case))
        own = [[label for label in labels(each.case) if known[label] == 1] for each in like[:3]]
        near = ", ".join(min(unique, key=len) for unique in own if unique)
        raise UsageError(f"--trace {wanted!r} means {len(found)} cases; write one, such as {near}")
    case = found[0].case
    part = server.folder / "trace.json"
    if found[0].refusal:
        raise CannotRun(f"--trace {wanted}: {found[0].refusal}")
    question = Trace(**of_case(case), **request.settings.worker_settings, path=str(part))
    with server.process(limit_bytes=request.settings.memory_limit_bytes) as worker:
        answer = worker.ask(question, request.case_timeout_s or math.inf)
    if isinstance(answer, Failure):
        raise CannotRun(f"--trace {wanted}: {answer.outcome}: {answer.reason}")
    label = re.sub(r"[^\w.=-]+", "-", str(case))[-200:].strip("-")
    output.fill(folder, {f"trace-{label}.json": part.read_bytes()}, then=output.ELSEWHERE)
    console.err().print(f"the trace is {folder}/trace-{label}.json; ui.perfetto.dev shows it")


def labels(case: Case) -> set[str]:
    """Accepted names of a case: its own, and mechanism or series with mode and length."""
    place = f"{case.workload.mode}/{case.workload.seq_len}"
    return {str(case), f"{case.series}/{place}", f"{case.mechanism}/{place}"}
