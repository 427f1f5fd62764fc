"""`attnbench sweep`: measures, and reports what it measured."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from attnbench.cli import console
from attnbench.cli.options import as_json, option, parsed, switch, with_sweep_options
from attnbench.cli.stopping import stoppable
from attnbench.cli.stored import publish
from attnbench.devices.finding import AUTO, kinds
from attnbench.errors import UsageError
from attnbench.fleet import folder as fleets
from attnbench.records import Cluster, EngineKind, HelpPanel, Request, Shard, Sweep
from attnbench.store.journal import load
from attnbench.store.resuming import asked as defining
from attnbench.store.resuming import refuse_differences
from attnbench.workloads import axes
from attnbench.workloads.options import flag
from attnbench.workloads.requests import FILE, from_toml, of_record, request, resumed, to_toml


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
        "FOLDER", "Folder of the sweep.  [default: reports/<date>]", HelpPanel.OUTPUT
    ),
    resume: str | None = option(
        "FOLDER",
        "Resume the sweep in this folder; its options need not be repeated.",
        HelpPanel.OUTPUT,
    ),
    trace: str | None = option(
        "CASE",
        "Only profile one case, such as fastformer/training/1024, and write its trace for"
        " ui.perfetto.dev into the folder.",
        HelpPanel.OUTPUT,
    ),
    dry_run: bool = switch(
        "--dry-run", "Print the plan with predictions; run nothing.", HelpPanel.OUTPUT
    ),
    json_: bool = as_json(HelpPanel.OUTPUT),
) -> None:
    """Measure time and memory of mechanisms over sequence lengths, and draw the figure."""
    show = partial(publish, as_json=True) if json_ else publish
    run(given, config, shard, out, resume, trace, dry_run, show, json_)


def run(
    given: Mapping[str, Any],
    config: Path | None = None,
    shard: str | None = None,
    out: Path | None = None,
    resume: str | None = None,
    trace: str | None = None,
    dry_run: bool = False,
    show: Callable[[Path, Sweep], None] = publish,
    plan_as_json: bool = False,
) -> None:
    """`sweep` with typed options.

    `show` reports the folder of a sweep that was measured, and what its journal holds; a dry run
    prints its plan as a table, or as JSON.
    """
    if resume and out:
        raise UsageError("--resume FOLDER is the folder of the sweep: leave out --out")
    folder = Path(resume or out or f"reports/{datetime.now():%Y%m%d-%H%M%S}")
    options = {**(from_toml(config) if config else {}), **given}
    earlier = None
    if resume and fleets.begun(folder):  # a fleet has no journal: its options come from a file
        options = {**from_toml(folder / FILE), **options}
    elif resume:
        earlier = load(folder)
    part = axes.shard(shard) if shard is not None else earlier.shard if earlier else None
    asked = Asked(options=options, shard=part, folder=folder, resumes=bool(resume))
    refuse_useless(asked, trace, dry_run)
    console.begin("reading mechanisms")
    measure(asked, request_of(asked, earlier), trace, dry_run, show, plan_as_json)


def passed_on(
    verb: str, taken: Collection[str], arguments: Sequence[str], *names: str
) -> tuple[list[str], dict[str, Any]]:
    """As `parsed`, for a verb that takes some options of `sweep`. Raises `UsageError`."""
    found, given = parsed(sweep, arguments, *names)
    if useless := [flag(name) for name in given if name not in taken]:
        raise UsageError(f"attnbench {verb} takes no {useless[0]}")
    return found, given


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the command line asks of a sweep, but for the request.

    `options` are the typed values of those that someone gave, by name.
    """

    options: Mapping[str, Any]
    shard: Shard | None
    folder: Path
    resumes: bool

    @property
    def where(self) -> Cluster:
        """The cluster that measures, if any."""
        return Cluster(**of_record(Cluster, self.options))


def request_of(asked: Asked, earlier: Sweep | None) -> Request:
    """The request of a new sweep, or an earlier sweep's with new limits.

    Raises `UsageError`, or `DifferentSweep` if an option asks for something else than before.
    """
    if earlier is None:
        where = asked.where
        divided = bool(asked.shard or where.shards or where.on)
        # this machine need not have the cluster's device
        return request(asked.options, divided=divided, elsewhere=where.on is not None)
    again = resumed(earlier.request, asked.options)
    refuse_differences(earlier, defining(earlier.request), defining(again))
    return again


def measure(
    asked: Asked,
    request: Request,
    trace: str | None,
    dry_run: bool,
    show: Callable[[Path, Sweep], None] = publish,
    plan_as_json: bool = False,
) -> None:
    """Measure and report; or only trace a case, or only print the plan."""
    from attnbench.api.measuring import own_server, refuse_begun, refuse_empty
    from attnbench.cli import cluster, planning, sweep_output
    from attnbench.workloads.reading import plan

    folder, on = asked.folder, asked.where.on
    measures = trace is None and not dry_run
    if measures and not asked.resumes:
        refuse_begun(folder)
    fleet = cluster.fleet_of(asked) if on and measures else None
    engine = cluster.engine_of(asked, request) if fleet else None
    journal = None
    # the journal stays open until it is reported, so that nothing else takes its place unnoticed
    with stoppable(lambda: sweep_output.interruption_message(folder)), ExitStack() as held:
        with own_server(request.settings.threads, request.settings.seed) as server:
            planned = plan(request, server)
            if trace is not None:
                planning.trace(trace, planned.cases, request, server, folder)
            elif dry_run:
                planning.foretell(asked, request, planned.cases, plan_as_json)
            elif not on:
                file = to_toml(asked.options)
                journal = held.enter_context(
                    sweep_output.measure(request, planned, server, folder, asked.shard, file)
                )
        if fleet and engine:
            cluster.run_fleet(asked, fleet, engine, request, planned.cases)
        if measures and asked.shard is None:
            measured = journal.held() if journal else load(folder)
            refuse_empty(measured, folder)
            show(folder, measured)


def refuse_useless(asked: Asked, trace: str | None, dry_run: bool) -> None:
    """Raises `UsageError` if options have no effect together."""
    on, shards, shard = asked.where.on, asked.where.shards, asked.shard
    cold, device = asked.options.get("cold"), asked.options.get("device", AUTO)
    devices = " or ".join(kinds())
    rules = (
        (on and shard, "--shard measures one shard here and --on all on a cluster; give one"),
        (shard and shards, "--shard I/N already has the number of shards; leave out --shards"),
        (shards and not (on or dry_run), "--shards needs --on or --dry-run; see also --shard"),
        (asked.where.slurm and on is not EngineKind.SLURM, "--slurm needs --on slurm"),
        (
            trace is not None and (on or shard or dry_run or cold),
            "--trace only profiles one case here; leave out --on, --shard, --dry-run and --cold",
        ),
        (on and device == AUTO, f"--on needs a --device that the nodes have: {devices}"),
        (
            ":" in device and (on or shard),
            "the scheduler assigns each shard its device; leave out the number",
        ),
    )
    for useless, reason in rules:
        if useless:
            raise UsageError(reason)
