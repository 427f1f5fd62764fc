"""What `attnbench sweep` does without measuring: `--dry-run` and `--trace`."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from attnbench.analysis.statistics.curves import size_names
from attnbench.commands import console
from attnbench.commands.sweeping import on_cluster
from attnbench.commands.sweeping.cluster.folder import script
from attnbench.commands.sweeping.invocation import Invocation
from attnbench.devices import find
from attnbench.devices.cgroups import cores
from attnbench.errors import CannotRun, UsageError
from attnbench.records import Case, Planned, Request, messages, storage, units
from attnbench.report import cases
from attnbench.running import shards
from attnbench.running.foresee import foresee
from attnbench.running.pool import Pool
from attnbench.running.session import first_reason


def foretell(
    invocation: Invocation, request: Request, plan: Sequence[Planned], as_json: bool = False
) -> None:
    """Print every case and the whole sweep, or one shard of it, with predictions.

    Of a sweep on a cluster also the script of its jobs, but not as JSON. Raises `CannotRun` if no
    case of the plan can run, `UsageError` at too many shards.

    invocation: options, folder, and where the sweep would run
    request:    what would be measured
    plan:       all cases
    as_json:    print data in place of a table
    """
    on = invocation.where.on
    shard = invocation.shard
    divided = shard.of if shard else invocation.where.shards
    memory_bytes = None if on else find(request.device).memory_bytes()
    own_cases = shards.cases_of_shard(plan, request, shard)
    forecast = foresee(request, own_cases, memory_bytes, 1 if on else cores())
    if all(planned.refusal for planned in plan):
        raise CannotRun(
            f"none of {units.many(len(plan), 'case')} can run;"
            f" {first_reason(plan, forecast.left_out.values())}; choose other options or mechanisms"
        )
    if as_json:
        console.data(cases.plan_data(plan, request, forecast, memory_bytes))
        return
    lines = [cases.plan_total(plan, request, forecast, memory_bytes)]
    if divided:
        slowest, alone = (units.seconds(shards.makespan_s(plan, request, n)) for n in (divided, 1))
        lines.append(
            f"In {units.many(divided, 'shard')} of whole blocks, the slowest is predicted to take"
            f" {slowest}, everything in one place {alone}."
        )
    console.show(cases.plan_table(plan, request, forecast, size_names(plan)))
    console.out().print("", *lines, sep="\n")
    if on and divided:
        print(script(invocation.folder, divided, on_cluster.command(invocation.folder)))


def trace(
    case_name: str, plan: Sequence[Planned], request: Request, server: Pool, folder: Path
) -> None:
    """Write the trace of a case of the plan into the folder; nothing is timed.

    Raises `UsageError` if `case_name` is not one case of the plan, `CannotRun` if it does not run.

    case_name: one of `names_of_case` of the case
    plan:      all cases
    request:   how the case is measured, and for how long at most
    server:    the processes that measure
    folder:    where the trace is written
    """
    matches = [planned for planned in plan if case_name in names_of_case(planned.case)]
    if len(matches) != 1:
        candidates = matches or [each for each in plan if case_name in str(each.case)] or plan
        label_counts = Counter(label for each in plan for label in names_of_case(each.case))
        unique = [
            [label for label in names_of_case(each.case) if label_counts[label] == 1]
            for each in candidates[:3]
        ]
        examples = ", ".join(min(names, key=len) for names in unique if names)
        raise UsageError(
            f"--trace {case_name!r} means {len(matches)} cases; write one, such as {examples}"
        )
    case = matches[0].case
    part = server.folder / "trace.json"
    if matches[0].refusal:
        raise CannotRun(f"--trace {case_name}: {matches[0].refusal}")
    question = messages.Trace(
        **messages.of_case(case), **request.settings.worker_settings, path=str(part)
    )
    with server.process(limit_bytes=request.settings.memory_limit_bytes) as worker:
        answer = worker.ask(question, request.case_timeout_s or math.inf)
    if isinstance(answer, messages.Failure):
        raise CannotRun(f"--trace {case_name}: {answer.outcome}: {answer.reason}")
    label = re.sub(r"[^\w.=-]+", "-", str(case))[-200:].strip("-")
    storage.output.fill(
        folder, {f"trace-{label}.json": part.read_bytes()}, then=storage.output.ELSEWHERE
    )
    console.err().print(f"the trace is {folder}/trace-{label}.json; ui.perfetto.dev shows it")


def names_of_case(case: Case) -> set[str]:
    """Accepted names of a case: its own, and mechanism or series with mode and length."""
    place = f"{case.workload.mode}/{case.workload.seq_len}"
    return {str(case), f"{case.series}/{place}", f"{case.mechanism}/{place}"}
