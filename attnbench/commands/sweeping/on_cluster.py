"""What `sweep` does on a cluster: start the shards, show their progress, merge, and report."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from attnbench.commands import console
from attnbench.commands.stopping import stoppable
from attnbench.commands.sweeping.cluster import folder as fleets
from attnbench.commands.sweeping.cluster.drive import drive as run_shards
from attnbench.commands.sweeping.cluster.engine import Engine
from attnbench.commands.sweeping.cluster.folder import Fleet
from attnbench.commands.sweeping.invocation import Invocation
from attnbench.commands.sweeping.output import batch_and_dtypes
from attnbench.devices import find
from attnbench.errors import CannotRun, DifferentSweep, Incomplete, UsageError
from attnbench.records import Cluster, EngineKind, Planned, Request, Sweep, storage, units
from attnbench.running import shards
from attnbench.running.request.options import options
from attnbench.running.request.requests import FILE, from_toml, to_toml


def engine_of(invocation: Invocation, request: Request) -> Engine:
    """The cluster to use. Raises `CannotRun` if it does not answer, `UsageError`."""
    gpus = find(request.device).gpus
    # beside a GPU a shard needs few cores, and this machine's number is not the nodes'
    cpus = request.settings.threads if "threads" in invocation.options or not gpus else 1
    if invocation.where.on is EngineKind.SLURM:
        from attnbench.commands.sweeping.cluster.slurm import Slurm

        return Slurm(invocation.where.slurm, gpus, cpus)
    from attnbench.commands.sweeping.cluster import ray

    return ray.Ray(gpus, cpus)


def command(folder: Path) -> list[str]:
    """The command that every shard runs, with its options in a file of the folder."""
    file = os.path.abspath(folder / fleets.OPTIONS)
    return [sys.executable, "-m", "attnbench", "sweep", "--config", file]


def options_of_shards(user_options: Mapping[str, Any], device: str) -> bytes:
    """The file of the shards' options: those that say nothing of the cluster, and the device."""
    every_option = options()
    shard_options = {n: v for n, v in user_options.items() if every_option[n].record is not Cluster}
    return to_toml({**shard_options, "device": device})


def fleet_of(invocation: Invocation) -> Fleet:
    """How a new sweep is divided, or one that is resumed.

    Raises `SweepExists`, `StoreError`, `UsageError`, or `DifferentSweep` with another engine or
    number of shards than those stored.
    """
    folder = invocation.folder
    on = invocation.where.on
    count = invocation.where.shards
    assert on is not None, "asked for"
    if invocation.resumes:
        fleet = fleets.read(folder)
        if (on, count or fleet.shards) != (fleet.engine, fleet.shards):
            raise DifferentSweep(
                f"the sweep in '{folder}' has {units.many(fleet.shards, 'shard')} on"
                f" {fleet.engine}: leave out --on and --shards, or sweep into another folder"
                " with --out"
            )
        return fleet
    if count is None:
        raise UsageError(f"--on {on} needs --shards, the number of parts; --dry-run shows them")
    fleets.refuse_begun(folder)
    return Fleet(engine=on, shards=count, name=fleets.job_name(folder))


def run_fleet(
    invocation: Invocation,
    fleet: Fleet,
    engine: Engine,
    request: Request,
    plan: Sequence[Planned],
    show: Callable[[Path, Sweep], None],
) -> None:
    """Run every shard to its end and merge them in the folder, next to the sweep's options.

    Raises `CannotRun`, `DifferentSweep` if the shards cannot be merged, and `Incomplete` if not all
    were measured, after they were reported.

    invocation: options and folder of the sweep
    fleet:      how it is divided, with the jobs so far
    engine:     the scheduler
    request:    what is to be measured
    plan:       all cases
    show:       reports what was merged if some shards are missing; else the caller does
    """
    folder = invocation.folder
    predicted = units.seconds(shards.makespan_s(plan, request, fleet.shards))
    alone = " and alone on its node (--slurm --oversubscribe lets it share)" if engine.alone else ""
    console.err().print(
        f"{units.many(fleet.shards, 'shard')} on {fleet.engine}, each on {request.device}{alone};"
        f" {batch_and_dtypes(request)}, {units.many(request.rounds, 'round')};"
        f" predicted {predicted}; into {folder}"
    )
    with fleets.driven(folder), stoppable(lambda: still_running(folder, engine)):
        if invocation.resumes:
            fleet = fleets.read(folder)  # another process may have driven it until now
        else:
            fleets.refuse_begun(folder)
            write_options(folder, invocation.options)
        shard_options = options_of_shards(invocation.options, request.device)
        storage.output.write(folder / fleets.OPTIONS, shard_options)
        # last: where a fleet has begun, its options are there
        fleets.prepare(folder, fleet, command(folder))
        try:
            failed = run_shards(folder, engine, console.err().print)
        except CannotRun as error:
            raise CannotRun(f"{error}; {still_running(folder, engine)}") from error
    lost = lost_shards(failed, fleet.shards)
    try:
        runs = merged(folder, fleet.shards)
    except DifferentSweep as error:
        raise DifferentSweep(f"{lost}{error}") from error
    if lost:
        if not runs:
            raise CannotRun(f"{lost}nothing was measured; {resuming(folder)}")
        show(folder, storage.load(folder))
        raise Incomplete(f"{lost}merged: {runs}; {resuming(folder)}")


def write_options(folder: Path, user_options: Mapping[str, Any]) -> None:
    """Store what repeats the sweep. Raises `StoreError`.

    A file that says the same is left as the user wrote it; engine and number of shards are in the
    fleet's state too, so it need not name them.
    """
    in_state = {name: user_options[name] for name in ("on", "shards") if name in user_options}
    with suppress(UsageError):
        if {**in_state, **from_toml(folder / FILE)} == user_options:
            return
    storage.output.write(folder / FILE, to_toml(user_options))


def lost_shards(failed: Mapping[int, str], count: int) -> str:
    """The beginning of a message on `failed` shards of so many, by number; empty without any."""
    if not failed:
        return ""
    number, reason = min(failed.items())
    more = f" (and {units.many(len(failed) - 1, 'other')})" if len(failed) > 1 else ""
    return f"shard {number}/{count}{more} {reason}; "


def merged(folder: Path, count: int) -> str:
    """Merge what the shards measured, say so, and return how many runs these are.

    Raises `StoreError`, or `DifferentSweep` if they are not of one sweep.
    """
    sweeps = {n: fleets.stored(folder, n) for n in range(1, count + 1)}
    stored = [number for number, sweep in sweeps.items() if sweep and sweep.plan]
    if not stored:
        return ""
    anew = f"{resuming(folder)} with that shard measured anew"
    merged_sweep = storage.merge(
        [fleets.shard_folder(folder, n) for n in stored],
        folder,
        again=True,
        way_out=f"move one of the two folders away, and {anew}",
    )
    runs = units.many(len(merged_sweep.runs), "run")
    hosts = {run.origin.host for run in merged_sweep.runs}
    console.err().print(
        f"{units.many(len(stored), 'shard')} merged in {folder}: {runs} of"
        f" {units.many(len(merged_sweep.plan), 'case')} from {units.many(len(hosts), 'node')}",
        soft_wrap=True,  # a folder in two lines cannot be copied
    )
    return runs


def still_running(folder: Path, engine: Engine) -> str:
    """What is still running after an interruption, and how to resume."""
    if not fleets.begun(folder):
        return "nothing was measured"
    asked = fleets.asked(folder)
    jobs = fleets.read(folder).jobs.items()
    ids = ", ".join(job.id for n, job in jobs if not fleets.is_measured(folder, n, asked))
    advice = f"jobs {ids} keep running ({engine.ends} ends them); " if ids else ""
    return advice + resuming(folder)


def resuming(folder: Path) -> str:
    """The command that resumes."""
    return f"attnbench sweep --resume '{folder}' continues"
