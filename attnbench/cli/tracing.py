"""`attnbench sweep … --trace CASE`: one case under torch's profiler; nothing is timed."""

import math
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from attnbench.cli import console
from attnbench.errors import CannotRun, UsageError
from attnbench.records import Case, Planned, Request
from attnbench.run.pool import Pool
from attnbench.store import output


def trace(
    wanted: str, plan: Sequence[Planned], request: Request, server: Pool, folder: Path
) -> None:
    """Write the trace of a case of the plan into the folder.

    Raises `UsageError` if `wanted` is not one case of the plan, `CannotRun` if it does not run.
    """
    found = [planned for planned in plan if wanted in labels(planned.case)]
    if len(found) != 1:
        near = "; ".join(str(planned.case) for planned in (found or plan)[:3])
        raise UsageError(f"--trace {wanted!r} means {len(found)} cases; write one, such as {near}")
    case, part = found[0].case, server.folder / "trace.json"
    if found[0].refusal:
        raise CannotRun(f"--trace {wanted}: {found[0].refusal}")
    asked = {**request.settings.worker_settings, **asdict(case), "path": str(part)}
    with server.process(limit_bytes=request.settings.memory_limit_bytes) as worker:
        answer = worker.ask(request.case_timeout_s or math.inf, do="trace", **asked)
    if answer["outcome"] != "ok":
        raise CannotRun(f"--trace {wanted}: {answer['outcome']}: {answer['reason']}")
    label = re.sub(r"[^\w.=-]+", "-", str(case))[-200:].strip("-")
    output.fill(folder, {f"trace-{label}.json": part.read_bytes()}, then=output.ELSEWHERE)
    console.err().print(f"the trace is {folder}/trace-{label}.json; ui.perfetto.dev shows it")


def labels(case: Case) -> set[str]:
    """Accepted names of a case: its own, and mechanism or series with mode and length."""
    place = f"{case.workload.mode}/{case.workload.seq_len}"
    return {str(case), f"{case.series}/{place}", f"{case.mechanism}/{place}"}
