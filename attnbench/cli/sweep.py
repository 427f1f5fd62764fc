"""`attnbench sweep`: measures, and reports what it measured."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from attnbench.cli import console
from attnbench.cli.options import as_json, option, switch
from attnbench.cli.stopping import stoppable
from attnbench.cli.typer_options import with_sweep_options
from attnbench.devices.finding import find
from attnbench.errors import UsageError
from attnbench.records import Cluster, EngineKind, HelpPanel, Shard
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
    from attnbench.workloads import config as file
    from attnbench.workloads.requests import of_record, request

    if resume and out:
        raise UsageError("--resume FOLDER is the folder of the sweep: leave out --out")
    folder = Path(resume) if resume else out
    written = {**(file.read(config) if config else {}), **given}
    resumes = resume is not None
    stored, earlier = resuming.load_earlier(folder) if resumes and folder else ({}, None)
    options = {**stored, **written}
    where = Cluster(**of_record(Cluster, options))
    part = axes.shard(shard) if shard is not None else earlier.shard if earlier else None
    on, shards = where.on, where.shards
    if trace is not None and (on or part or dry_run or json_ or options.get("cold")):
        useless = "--on, --shard, --dry-run, --json and --cold"
        raise UsageError(f"--trace only profiles one case here; leave out {useless}")
    refuse_useless(where, part, dry_run, json_)
    if ":" in options.get("device", "") and (on or part):
        raise UsageError("the scheduler assigns each shard its device; leave out the number")
    console.begin("reading mechanisms")
    if earlier:
        requested = resuming.resumed_request(earlier, written)
    else:
        divided = any(value is not None for value in (part, shards, on))
        # this machine need not have the cluster's device
        requested = request(options, divided=divided, elsewhere=on is not None)
    from attnbench.api.measuring import refuse_begun, refuse_empty
    from attnbench.api.servers import own_server
    from attnbench.cli import cluster, tracing
    from attnbench.cli.dry_run import show_plan
    from attnbench.cli.report import publish
    from attnbench.cli.sweep_output import interruption_message, measure
    from attnbench.fleet import folder as fleets
    from attnbench.workloads.reading import plan

    folder = folder or Path("reports") / f"{datetime.now():%Y%m%d-%H%M%S}"
    if not resumes and not dry_run and trace is None:
        refuse_begun(folder)
    options_file = file.content(options, requested)
    command = cluster.command(options, requested.device)
    fleet, engine, lost = None, None, None
    if on and not dry_run:
        fleet = cluster.new_or_stored_fleet(folder, on, shards, resuming=resumes)
        engine = cluster.engine(where, requested, "threads" in options)
    with stoppable(lambda: interruption_message(folder)):
        with own_server(requested.settings.threads, requested.settings.seed) as server:
            planned = plan(requested, server)
            if trace is not None:
                tracing.trace(trace, planned.cases, requested, server, folder)
                return
            if dry_run:
                of = part.of if part else shards
                show_plan(
                    planned.cases,
                    requested,
                    memory_bytes=None if on else find(requested.device).memory_bytes(),
                    as_json=json_,
                    shards=of,
                    shard=part,
                )
                if on and of and not json_:
                    print(fleets.script(folder, fleets.Fleet(engine=on, shards=of), command))
                return
            if not on:
                measure(requested, planned, server, folder, part, options_file)
        if fleet and engine:
            lost = cluster.run_fleet(
                folder, fleet, engine, requested, planned.cases, command, options_file
            )
        if part is None:
            with cluster.report_then_raise(lost):
                refuse_empty(folder)
                publish(folder, as_json=json_)


def refuse_useless(where: Cluster, shard: Shard | None, dry_run: bool, as_json: bool) -> None:
    """Raises `UsageError` if an option of shards has no effect together with the others."""
    on, shards = where.on, where.shards
    rules = (
        (on and shard, "--shard measures one shard here and --on all on a cluster; give one"),
        (shard and shards, "--shard I/N already has the number of shards; leave out --shards"),
        (shards and not (on or dry_run), "--shards needs --on or --dry-run; see also --shard"),
        (where.slurm and on is not EngineKind.SLURM, "--slurm needs --on slurm"),
        (as_json and shard and not dry_run, "--json has no effect with --shard"),
    )
    for useless, reason in rules:
        if useless:
            raise UsageError(reason)
