"""`attnbench sweep`: measures, and reports what it measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from attnbench.cli import console
from attnbench.cli.options import as_json, option, switch
from attnbench.cli.stopping import stoppable
from attnbench.cli.typer_options import with_sweep_options
from attnbench.devices.finding import find
from attnbench.errors import UsageError
from attnbench.records import Cluster, EngineKind, HelpPanel, Planned, Request, Shard
from attnbench.workloads import axes


@with_sweep_options
def sweep(
    given: Mapping[str, Any],
    config: Path | None = option(
        "FILE", "TOML file of options; options on the command line override it.", HelpPanel.WHAT
    ),
    shard: str | None = option(
        "I/N", "Measure only shard I of N, e.g. 2/6; attnbench merge joins them.", HelpPanel.CLUSTER
    ),
    out: Path | None = option(
        "FOLDER", "Folder of the sweep.", HelpPanel.OUTPUT, show_default="reports/<date>"
    ),
    resume: str | None = option(
        "FOLDER",
        "Resume the sweep in this folder; its options need not be repeated.",
        HelpPanel.OUTPUT,
    ),
    json_: bool = as_json(HelpPanel.OUTPUT),
    trace: str | None = option(
        "CASE",
        "Only profile one case, such as fastformer/training/1024, and write its trace for"
        " ui.perfetto.dev into the folder.",
        HelpPanel.OUTPUT,
    ),
    dry_run: bool = switch(
        "--dry-run", "Print the plan with predictions; run nothing.", HelpPanel.OUTPUT
    ),
) -> None:
    """Measure time and memory of mechanisms over sequence lengths, and draw the figure."""
    from attnbench.cli import resuming
    from attnbench.workloads.requests import from_toml, of_record, request

    if resume and out:
        raise UsageError("--resume FOLDER is the folder of the sweep: leave out --out")
    folder = Path(resume or out or f"reports/{datetime.now():%Y%m%d-%H%M%S}")
    options = {**(from_toml(config) if config else {}), **given}
    stored, earlier = resuming.load_earlier(folder) if resume else ({}, None)
    options = {**stored, **options}
    where = Cluster(**of_record(Cluster, options))
    part = axes.shard(shard) if shard is not None else earlier.shard if earlier else None
    asked = Asked(options=options, where=where, shard=part, folder=folder, resumes=bool(resume))
    refuse_useless(asked, trace, dry_run, json_)
    console.begin("reading mechanisms")
    if earlier:
        requested = resuming.resumed_request(earlier, options)
    else:
        divided = bool(part or where.shards or where.on)
        # this machine need not have the cluster's device
        requested = request(options, divided=divided, elsewhere=where.on is not None)
    measure(asked, requested, json_, trace, dry_run)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the command line asks of a sweep, but for the request.

    `options` are the typed values of those that someone gave, by name.
    """

    options: Mapping[str, Any]
    where: Cluster
    shard: Shard | None
    folder: Path
    resumes: bool


def measure(
    asked: Asked, request: Request, as_json: bool, trace: str | None, dry_run: bool
) -> None:
    """Measure and report; or only trace a case, or only print the plan."""
    from attnbench.api.measuring import refuse_begun, refuse_empty
    from attnbench.api.servers import own_server
    from attnbench.cli import cluster, sweep_output, tracing
    from attnbench.cli.report import publish
    from attnbench.workloads.reading import plan
    from attnbench.workloads.requests import to_toml

    folder, on = asked.folder, asked.where.on
    measures = trace is None and not dry_run
    if measures and not asked.resumes:
        refuse_begun(folder)
    options_file = to_toml(asked.options)
    drive = cluster.drive(asked, request) if on and measures else None
    lost = None
    with stoppable(lambda: sweep_output.interruption_message(folder)):
        with own_server(request.settings.threads, request.settings.seed) as server:
            planned = plan(request, server)
            if trace is not None:
                tracing.trace(trace, planned.cases, request, server, folder)
            elif dry_run:
                foretell(asked, request, planned.cases, as_json)
            elif not on:
                sweep_output.measure(request, planned, server, folder, asked.shard, options_file)
        if drive:
            lost = cluster.run_fleet(drive, request, planned.cases, asked.options, options_file)
        if measures and asked.shard is None:
            with cluster.report_then_raise(lost):
                refuse_empty(folder)
                publish(folder, as_json=as_json)


def foretell(asked: Asked, request: Request, plan: Sequence[Planned], as_json: bool) -> None:
    """Print the plan, and of a sweep on a cluster the script of its jobs."""
    from attnbench.cli.cluster import command
    from attnbench.cli.dry_run import show_plan
    from attnbench.fleet.folder import script

    on, shards = asked.where.on, asked.shard.of if asked.shard else asked.where.shards
    memory_bytes = None if on else find(request.device).memory_bytes()
    show_plan(
        plan,
        request,
        memory_bytes=memory_bytes,
        as_json=as_json,
        shards=shards,
        shard=asked.shard,
    )
    if on and shards and not as_json:
        print(script(asked.folder, shards, command(asked.options, request.device)))


def refuse_useless(asked: Asked, trace: str | None, dry_run: bool, as_json: bool) -> None:
    """Raises `UsageError` if options have no effect together."""
    on, shards, shard = asked.where.on, asked.where.shards, asked.shard
    cold, numbered = asked.options.get("cold"), ":" in asked.options.get("device", "")
    rules = (
        (on and shard, "--shard measures one shard here and --on all on a cluster; give one"),
        (shard and shards, "--shard I/N already has the number of shards; leave out --shards"),
        (shards and not (on or dry_run), "--shards needs --on or --dry-run; see also --shard"),
        (asked.where.slurm and on is not EngineKind.SLURM, "--slurm needs --on slurm"),
        (as_json and shard and not dry_run, "--json has no effect with --shard"),
        (
            trace is not None and (on or shard or dry_run or as_json or cold),
            "--trace only profiles one case here; leave out --on, --shard, --dry-run, --json and"
            " --cold",
        ),
        (
            numbered and (on or shard),
            "the scheduler assigns each shard its device; leave out the number",
        ),
    )
    for useless, reason in rules:
        if useless:
            raise UsageError(reason)
