"""Carries out a sweep in the terminal, for the verbs that are one: `sweep` and `model`."""

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

from attnbench.commands import console
from attnbench.commands.publishing import publish
from attnbench.commands.stopping import stoppable
from attnbench.commands.sweeping.cluster import folder as fleets
from attnbench.commands.sweeping.invocation import Invocation, request_of
from attnbench.devices import AUTO
from attnbench.devices.finding import kinds
from attnbench.errors import UsageError
from attnbench.records import EngineKind, Request, Sweep, storage
from attnbench.running.request import axes
from attnbench.running.request.conflicts import Conflict, refuse
from attnbench.running.request.requests import from_toml, to_toml


def sweep_with(
    user_options: Mapping[str, Any],
    config: Path | None = None,
    shard: str | None = None,
    out: Path | None = None,
    resume: str | None = None,
    trace: str | None = None,
    dry_run: bool = False,
    show: Callable[[Path, Sweep], None] = publish,
    plan_as_json: bool = False,
) -> None:
    """Carry out a sweep with options whose values were read: measure, trace a case, or plan.

    Raises `UsageError` where options have no effect, and what measuring raises.

    user_options: typed values of the options that were written, by name
    config:       a TOML file of further options
    shard:        the part to measure here, `I/N`
    out:          folder of a new sweep; None: a dated one below `reports`
    resume:       folder of a sweep to continue, or its journal there
    trace:        the case to profile, and nothing else
    dry_run:      only print the plan
    show:         reports a folder that was measured, and what its journal holds
    plan_as_json: print the plan of a dry run as JSON, else as a table
    """
    if resume is not None and not str(resume):
        raise UsageError("--resume is empty; write the folder of a sweep, or leave it out")
    if resume and out:
        raise UsageError("--resume FOLDER is the folder of the sweep: leave out --out")
    folder = folder_of(resume) if resume else Path(out or f"reports/{datetime.now():%Y%m%d-%H%M%S}")
    options = {**(from_toml(config) if config else {}), **user_options}
    before = earlier = None
    if resume and fleets.begun(folder):  # a fleet has no journal: its options come from files
        before = fleets.options_begun_with(folder)
        options = {**fleets.options(folder), **options}
    elif resume:
        earlier = storage.load(folder)
    part = axes.shard(shard) if shard is not None else earlier.shard if earlier else None
    invocation = Invocation(
        options=options, shard=part, folder=folder, resumes=bool(resume), before=before
    )
    refuse_useless(invocation, trace, dry_run, plan_as_json)
    console.begin("reading mechanisms")
    carry_out(invocation, request_of(invocation, earlier), trace, dry_run, show, plan_as_json)


def folder_of(resume: str) -> Path:
    """The folder of a sweep to continue, of which the journal may be named.

    Raises `UsageError` if another file is, and `StoreError` if that is no journal either.
    """
    path = Path(resume)
    if not os.path.isfile(path):
        return path
    name = storage.output.JOURNAL
    if path.name == name:
        return path.parent
    storage.load(path)
    raise UsageError(
        f"--resume {resume!r} is a journal outside of a sweep's folder; to continue it there:"
        f" mkdir NEW && mv {shlex.quote(resume)} NEW/{name} && attnbench sweep --resume NEW"
    )


def carry_out(
    invocation: Invocation,
    request: Request,
    trace: str | None,
    dry_run: bool,
    show: Callable[[Path, Sweep], None] = publish,
    plan_as_json: bool = False,
) -> None:
    """Measure and report; or only trace a case, or only print the plan.

    invocation:   options, folder, and where the sweep runs
    request:      what is to be measured
    trace:        the case to profile, and nothing else
    dry_run:      only print the plan
    show:         reports a folder that was measured, and what its journal holds
    plan_as_json: print the plan of a dry run as JSON, else as a table
    """
    # these load numpy and psutil, for which neither help nor completion waits
    from attnbench.commands.sweeping import on_cluster, output, planning
    from attnbench.running.plan import plan
    from attnbench.running.session import measuring_server, refuse_empty

    folder = invocation.folder
    on = invocation.where.on
    measures = trace is None and not dry_run
    if measures and not invocation.resumes:
        fleets.refuse_begun(folder)
    fleet = on_cluster.fleet_of(invocation) if on and measures else None
    engine = on_cluster.engine_of(invocation, request) if fleet else None
    journal = None

    def left() -> str:
        """What an interruption leaves, and how to continue."""
        if engine:
            return on_cluster.still_running(folder, engine)
        return output.interruption_message(folder)

    # the journal stays open until it is reported, so that nothing else takes its place unnoticed
    with stoppable(left), ExitStack() as open_journal:
        with measuring_server(request.settings.threads, request.settings.seed) as server:
            planned = plan(request, server)
            if trace is not None:
                planning.trace(trace, planned.cases, request, server, folder)
            elif dry_run:
                planning.foretell(invocation, request, planned.cases, plan_as_json)
            elif not on:
                # options of a resumption alone would not repeat the sweep
                file = b"" if invocation.resumes else to_toml(invocation.options)
                journal = open_journal.enter_context(
                    output.measure_and_show(
                        request, planned, server, folder, invocation.shard, file
                    )
                )
        if fleet and engine:
            on_cluster.run_fleet(invocation, fleet, engine, request, planned.cases, show)
        if measures and invocation.shard is None:
            measured = journal.held() if journal else storage.load(folder)
            refuse_empty(measured, folder)
            show(folder, measured)


def refuse_useless(invocation: Invocation, trace: str | None, dry_run: bool, as_json: bool) -> None:
    """Raises `UsageError` if options have no effect together.

    invocation: what the command line asks of a sweep.
    trace: the case to profile, and nothing else.
    dry_run: only print the plan.
    as_json: print data in place of tables.
    """
    flags = {
        "shard": invocation.shard,
        "trace": trace is not None,
        "dry_run": dry_run,
        "json": as_json and not dry_run,
    }
    names = {name for name, value in {**invocation.options, **flags}.items() if value}
    refuse(conflicts(invocation, dry_run), names)


def conflicts(invocation: Invocation, dry_run: bool) -> Iterator[Conflict]:
    """Which options that say where and what to measure do not go together."""
    on = invocation.where.on
    device = invocation.options.get("device", AUTO)
    yield Conflict(
        given=("shard",),
        with_=("on",),
        reason="--shard measures one shard here and --on all on a cluster; give one",
    )
    yield Conflict(
        given=("shards",),
        with_=("shard",),
        reason="--shard I/N already has the number of shards; leave out --shards",
    )
    yield Conflict(
        given=("shards",),
        with_=not (on or dry_run),
        reason="--shards needs --on or --dry-run; see also --shard",
    )
    yield Conflict(
        given=("slurm",), with_=on is not EngineKind.SLURM, reason="--slurm needs --on slurm"
    )
    yield Conflict(
        given=("trace",),
        with_=("on", "shard", "dry_run", "cold"),
        reason="--trace only profiles one case here; leave out --on, --shard, --dry-run and --cold",
    )
    yield Conflict(
        given=("json",),
        with_=("shard", "trace"),
        reason="--json has no effect with --shard and --trace, which print no results",
    )
    yield Conflict(
        given=("on",),
        with_=device == AUTO,
        reason=f"--on needs a --device that the nodes have: {' or '.join(kinds())}",
    )
    yield Conflict(
        given=("on", "shard"),
        with_=":" in device,
        reason="the scheduler assigns each shard its device; leave out the number",
    )
