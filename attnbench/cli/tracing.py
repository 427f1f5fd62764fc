"""`attnbench sweep … --trace CASE`: one case under the profiler; nothing is timed."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from attnbench.catalogue.registry import unknown_name_message
from attnbench.cli import console
from attnbench.errors import CannotRun, UsageError
from attnbench.records import Case, Planned, Request, Selection
from attnbench.render.grid import Cell, Table, words
from attnbench.run.processes import ServerHandle
from attnbench.store import output
from attnbench.store.journal import refuse_unwritable
from attnbench.units import many, percent, seconds, signed, size
from attnbench.workloads import axes


def trace(
    wanted: str,
    plan: Sequence[Planned],
    request: Request,
    server: ServerHandle,
    folder: Path,
    as_json: bool,
) -> None:
    """Trace the case of the plan in a new process, write the trace, and print the operators.

    Raises `UsageError` if `wanted` is not one case of the plan, `CannotRun` if it does not run.
    """
    settings = request.settings
    if settings.cold:
        raise UsageError("--cold has no effect on --trace, whose iterations follow one another")
    planned = chosen(wanted, plan)
    case = planned.case
    if planned.refusal:
        raise CannotRun(f"--trace {wanted}: {planned.refusal}")
    refuse_unwritable(folder)
    part = server.folder / "trace.json"
    with server.worker(limit_bytes=settings.memory_limit_bytes) as worker:
        answer = worker.ask(
            request.case_timeout_s,
            do="trace",
            path=str(part),
            **settings.worker_settings,
            **asdict(case),
        )
    if answer["outcome"] != "ok":
        raise CannotRun(f"--trace {wanted}: {answer['outcome']}: {answer['reason']}")
    file = folder / f"trace-{file_name(str(case))}.json"
    content = part.read_bytes()
    json.loads(content)  # a mechanism may have written to the file
    output.fill(folder, {file.name: content}, then=output.ELSEWHERE)
    if as_json:
        console.data({"case": str(case), "file": str(file), **answer, "outcome": None})
        return
    console.show(operators_table(case.series, case.workload, answer))
    console.err().print(f"the trace is {file}; chrome://tracing and ui.perfetto.dev show it")


def chosen(wanted: str, plan: Sequence[Planned]) -> Planned:
    """The only case of the plan with this label, or with a label such as `fastformer/training/1k`.

    Raises `UsageError`.
    """
    for planned in plan:
        if str(planned.case) == wanted:
            return planned
    match = re.fullmatch(r"(.+/[a-z]+/)([^/]+)", wanted, re.DOTALL)
    if match is None:
        raise UsageError(
            f"--trace {wanted!r} is not a case; write MECHANISM/MODE/LENGTH, as in"
            f" {short(plan[0].case)}, or a whole label"
        )
    label = f"{match[1]}{axes.size(match[2], '--trace')}"
    found = [planned for planned in plan if label in labels(planned.case)]
    if not found:
        known = tuple(dict.fromkeys(short(planned.case) for planned in plan))
        raise UsageError(f"--trace: {unknown_name_message(label, known, 'case')}")
    if len(found) > 1:
        names = [short(planned.case) for planned in found]
        if len(set(names)) < len(names):
            names = [str(planned.case) for planned in found]
        meant = many(len(found), "case")
        raise UsageError(f"--trace {wanted} means {meant}; write {' or '.join(names)}")
    return found[0]


def labels(case: Case) -> set[str]:
    """Accepted labels of a case: its series with or without form and options, mode, length."""
    return {
        short(case, str(Selection(name=case.mechanism, form=form, options=options)))
        for form in (None, case.form)
        for options in ((), case.options)
    }


def short(case: Case, series: str = "") -> str:
    """`fastformer:folded/training/1024`."""
    return f"{series or case.series}/{case.workload.mode}/{case.workload.seq_len}"


def file_name(label: str) -> str:
    """A label as part of a file name."""
    return re.sub(r"[^\w.=-]+", "-", label)[-200:].strip("-")


def operators_table(series: str, workload: Any, answer: Mapping[str, Any]) -> Table:
    """The costliest operators of an iteration."""
    rows = tuple(
        (
            words(row["operator"]),
            Cell(seconds(row["self_s"]), row["self_s"]),
            Cell(percent(row["share"]), row["share"]),
            Cell(f"{row['calls']:,.4g}", row["calls"]),
            Cell(signed(size(row["allocated_bytes"])), row["allocated_bytes"]),
        )
        for row in answer["operators"]
    )
    return Table(
        name="operators",
        title=f"Costliest operators of {series}, {workload}",
        columns=("Operator", "Self time", "Share", "Calls", "Allocated"),
        rows=rows,
        note="Per iteration, excluding the operators that each one calls. The profiler makes every"
        f" call slower: an iteration took {seconds(answer['iteration_s'])} without it. Negative"
        " sizes: more was freed than allocated.",
    )
