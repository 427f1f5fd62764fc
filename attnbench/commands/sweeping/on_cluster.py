"""What `sweep` does on a cluster: start the shards, show their progress, merge, and report."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attnbench.commands import console
from attnbench.commands.stopping import stoppable
from attnbench.commands.sweeping.asked import Asked
from attnbench.commands.sweeping.cluster import folder as fleets
from attnbench.commands.sweeping.cluster.drive import drive as run_shards
from attnbench.commands.sweeping.cluster.engine import Engine
from attnbench.commands.sweeping.cluster.folder import Fleet
from attnbench.commands.sweeping.output import sizes
from attnbench.devices.finding import find
from attnbench.errors import CannotRun, DifferentSweep, Incomplete, SweepExists, UsageError
from attnbench.records import Cluster, EngineKind, Planned, Request, Sweep
from attnbench.records.storage import output
from attnbench.records.storage.journal import load
from attnbench.records.storage.merging import merge
from attnbench.records.units import many, seconds
from attnbench.running import shards
from attnbench.running.request.options import options
from attnbench.running.request.requests import to_toml
from attnbench.running.session import store_options

OPTIONS = "shard.toml"  # those of every shard


def engine_of(asked: Asked, request: Request) -> Engine:
    """The cluster to use. Raises `CannotRun` if it does not answer, `UsageError`."""
    gpus = find(request.device).gpus
    # beside a GPU a shard needs few cores, and this machine's number is not the nodes'
    cpus = request.settings.threads if "threads" in asked.options or not gpus else 1
    if asked.where.on is EngineKind.SLURM:
        from attnbench.commands.sweeping.cluster.slurm import Slurm

        return Slurm(asked.where.slurm, gpus, cpus)
    from attnbench.commands.sweeping.cluster import ray

    return ray.Ray(gpus, cpus)


def command(folder: Path) -> list[str]:
    """The command that every shard runs, with its options in a file of the folder."""
    file = os.path.abspath(folder / OPTIONS)
    return [sys.executable, "-m", "attnbench", "sweep", "--config", file]


def options_of_shards(given: Mapping[str, Any], device: str) -> bytes:
    """That file: the options of the sweep that say nothing of the cluster, and its device."""
    own = {name: value for name, value in given.items() if options()[name].record is not Cluster}
    return to_toml({**own, "device": device})


def fleet_of(asked: Asked) -> Fleet:
    """How a new sweep is divided, or one that is resumed.

    Raises `SweepExists`, `StoreError`, `UsageError`, or `DifferentSweep` with another engine or
    number of shards than those stored.
    """
    folder = asked.folder
    on = asked.where.on
    wanted = asked.where.shards
    assert on is not None, "asked for"
    if asked.resumes:
        fleet = fleets.read(folder)
        if (on, wanted or fleet.shards) != (fleet.engine, fleet.shards):
            raise DifferentSweep(
                f"the sweep in '{folder}' has {many(fleet.shards, 'shard')} on {fleet.engine}:"
                " leave out --on and --shards, or sweep into another folder with --out"
            )
        return fleet
    if wanted is None:
        raise UsageError(f"--on {on} needs --shards, the number of parts; --dry-run shows them")
    if fleets.begun(folder):
        raise SweepExists(folder)
    return Fleet(engine=on, shards=wanted)


def run_fleet(
    asked: Asked,
    fleet: Fleet,
    engine: Engine,
    request: Request,
    plan: Sequence[Planned],
    show: Callable[[Path, Sweep], None],
) -> None:
    """Run every shard to its end and merge them in the folder, next to the sweep's options.

    `show` reports what was merged if some shards are missing; else the caller does. Raises
    `CannotRun`, and `Incomplete` if not all were measured, after that report.
    """
    folder = asked.folder
    predicted = seconds(shards.makespan_s(plan, request, fleet.shards))
    alone = " and alone on its node (--slurm --oversubscribe lets it share)" if engine.alone else ""
    console.err().print(
        f"{many(fleet.shards, 'shard')} on {fleet.engine}, each on {request.device}{alone};"
        f" {sizes(request)}, {many(request.rounds, 'round')};"
        f" predicted {predicted}; into {folder}"
    )
    with fleets.driven(folder), stoppable(lambda: still_running(folder, engine)):
        fleets.prepare(folder, fleet, command(folder))
        output.write(folder / OPTIONS, options_of_shards(asked.options, request.device))
        store_options(folder, to_toml(asked.options))
        try:
            failed = run_shards(folder, engine, console.err().print)
        except CannotRun as error:
            raise CannotRun(f"{error}; {still_running(folder, engine)}") from error
    kept = merged(folder, fleet.shards)
    if failed:
        number, why = min(failed.items())
        more = f" (and {many(len(failed) - 1, 'other')})" if len(failed) > 1 else ""
        said = f"shard {number}/{fleet.shards}{more} {why}; {{}}; {resuming(folder)}"
        if not kept:
            raise CannotRun(said.format("nothing was measured"))
        show(folder, load(folder))
        raise Incomplete(said.format(f"merged: {kept}"))


def merged(folder: Path, count: int) -> str:
    """Merge what the shards measured, say so, and return how many runs these are."""
    sweeps = {n: fleets.stored(folder, n) for n in range(1, count + 1)}
    stored = [number for number, sweep in sweeps.items() if sweep and sweep.plan]
    if not stored:
        return ""
    whole = merge([fleets.shard_folder(folder, n) for n in stored], folder, again=True)
    runs = many(len(whole.runs), "run")
    hosts = {run.origin.host for run in whole.runs}
    console.err().print(
        f"{many(len(stored), 'shard')} merged in {folder}: {runs} of"
        f" {many(len(whole.plan), 'case')} from {many(len(hosts), 'node')}",
        soft_wrap=True,  # a folder in two lines cannot be copied
    )
    return runs


def still_running(folder: Path, engine: Engine) -> str:
    """What is still running after an interruption, and how to resume."""
    jobs = fleets.read(folder).jobs.items() if fleets.begun(folder) else ()
    ids = ", ".join(job.id for n, job in jobs if not fleets.is_measured(folder, n))
    going = f"jobs {ids} keep running ({engine.ends} ends them); " if ids else ""
    return going + resuming(folder)


def resuming(folder: Path) -> str:
    """The command that resumes."""
    return f"attnbench sweep --resume '{folder}' continues"
