"""What `sweep` does on a cluster: start the shards, show their progress, merge, and report."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from attnbench.api.measuring import store_options
from attnbench.cli import console
from attnbench.cli.stopping import stoppable
from attnbench.cli.sweep_output import sizes
from attnbench.devices.finding import find
from attnbench.errors import (
    AttnbenchError,
    CannotRun,
    DifferentSweep,
    Incomplete,
    StoreError,
    SweepExists,
    UsageError,
)
from attnbench.fleet import folder as fleets
from attnbench.fleet import split
from attnbench.fleet.drive import drive as run_shards
from attnbench.fleet.engine import Engine
from attnbench.fleet.folder import Fleet
from attnbench.records import Cluster, EngineKind, Planned, Request
from attnbench.store import output
from attnbench.store.merging import merge
from attnbench.units import many, seconds
from attnbench.workloads.options import options
from attnbench.workloads.requests import to_toml

if TYPE_CHECKING:
    from attnbench.cli.sweep import Asked

OPTIONS = "shard.toml"  # those of every shard


def engine(where: Cluster, request: Request, threads_given: bool) -> Engine:
    """The cluster to use. Raises `CannotRun` if it does not answer, `UsageError`."""
    gpus = find(request.device).gpus
    # beside a GPU a shard needs few cores, and this machine's number is not the nodes'
    cpus = request.settings.threads if threads_given or not gpus else 1
    if where.on is EngineKind.SLURM:
        from attnbench.fleet.slurm import Slurm

        return Slurm(where.slurm, gpus, cpus)
    from attnbench.fleet import ray

    return ray.Ray(gpus, cpus)


def command(folder: Path) -> list[str]:
    """The command that every shard runs, with its options in a file of the folder."""
    file = os.path.abspath(folder / OPTIONS)
    return [sys.executable, "-m", "attnbench", "sweep", "--config", file]


def options_of_shards(given: Mapping[str, Any], device: str) -> bytes:
    """That file: the options of the sweep that say nothing of the cluster, and its device."""
    own = {name: value for name, value in given.items() if options()[name].record is not Cluster}
    return to_toml({**own, "device": device})


class Drive(NamedTuple):
    """What a sweep on a cluster needs: where it is, how it is divided, and what runs its shards."""

    folder: Path
    fleet: Fleet
    engine: Engine


def drive(asked: "Asked", request: Request) -> Drive:
    """What will run the shards of a new sweep, or of one that is resumed.

    Raises `SweepExists`, `StoreError`, `UsageError`, `CannotRun` if the cluster does not answer,
    `DifferentSweep` with another engine or number of shards than those stored.
    """
    folder, on, shards = asked.folder, asked.where.on, asked.where.shards
    assert on is not None, "asked for"
    if asked.resumes:
        fleet = fleets.read(folder)
        if (on, shards or fleet.shards) != (fleet.engine, fleet.shards):
            raise DifferentSweep(
                f"the sweep in '{folder}' has {many(fleet.shards, 'shard')} on {fleet.engine}:"
                " leave out --on and --shards, or sweep into another folder with --out"
            )
    elif shards is None:
        raise UsageError(f"--on {on} needs --shards, the number of parts; --dry-run shows them")
    elif fleets.begun(folder):
        raise SweepExists(folder)
    else:
        fleet = Fleet(engine=on, shards=shards)
    return Drive(folder, fleet, engine(asked.where, request, "threads" in asked.options))


def run_fleet(
    drive: Drive,
    request: Request,
    plan: Sequence[Planned],
    given: Mapping[str, Any],
    options_file: bytes,
) -> AttnbenchError | None:
    """Run every shard to its end and merge them in the folder, next to the sweep's options.

    Returns the error to raise at the end if not all were measured. Raises `CannotRun`.
    """
    folder, fleet, engine = drive
    predicted = seconds(split.makespan_s(plan, request, fleet.shards))
    alone = " and alone on its node (--slurm --oversubscribe lets it share)" if engine.alone else ""
    console.err().print(
        f"{many(fleet.shards, 'shard')} on {fleet.engine}, each on {request.device}{alone};"
        f" {sizes(request)}, {many(request.rounds, 'round')};"
        f" predicted {predicted}; into {folder}"
    )
    with fleets.driven(folder), stoppable(lambda: still_running(drive)):
        fleets.prepare(folder, fleet, command(folder))
        output.write(folder / OPTIONS, options_of_shards(given, request.device))
        store_options(folder, options_file)
        try:
            failed = run_shards(folder, engine, console.err().print)
        except CannotRun as error:
            raise CannotRun(f"{error}; {still_running(drive)}") from error
    return merged(folder, fleet.shards, failed)


def merged(folder: Path, shards: int, failed: Mapping[int, str]) -> AttnbenchError | None:
    """Merge what the shards measured, and say so; the error if not all were measured."""
    sweeps = {n: fleets.stored(folder, n) for n in range(1, shards + 1)}
    stored = [number for number, sweep in sweeps.items() if sweep and sweep.plan]
    kept = "nothing was measured"
    if stored:
        whole = merge([fleets.shard_folder(folder, n) for n in stored], folder, again=True)
        kept = f"merged: {many(len(whole.runs), 'run')}"
        hosts = {run.origin.host for run in whole.runs}
        console.err().print(
            f"{many(len(stored), 'shard')} merged in {folder}: {many(len(whole.runs), 'run')} of"
            f" {many(len(whole.plan), 'case')} from {many(len(hosts), 'node')}",
            soft_wrap=True,  # a folder in two lines cannot be copied
        )
    if not failed:
        return None
    number, why = min(failed.items())
    more = f" (and {many(len(failed) - 1, 'other')})" if len(failed) > 1 else ""
    said = f"shard {number}/{shards}{more} {why}; {kept}; {resuming(folder)}"
    return Incomplete(said) if stored else CannotRun(said)


@contextmanager
def report_then_raise(lost: AttnbenchError | None) -> Iterator[None]:
    """Report what was measured, and only then raise the error about lost shards."""
    try:
        yield
    except (CannotRun, StoreError):
        if lost is None:
            raise
    if lost:
        raise lost


def still_running(drive: Drive) -> str:
    """What is still running after an interruption, and how to resume."""
    jobs = fleets.read(drive.folder).jobs.items() if fleets.begun(drive.folder) else ()
    ids = ", ".join(job.id for n, job in jobs if not fleets.is_measured(drive.folder, n))
    going = f"jobs {ids} keep running ({drive.engine.ends} ends them); " if ids else ""
    return going + resuming(drive.folder)


def resuming(folder: Path) -> str:
    """The command that resumes."""
    return f"attnbench sweep --resume '{folder}' continues"


def shards_line(plan: Sequence[Planned], request: Request, shards: int) -> str:
    """How long a sweep in shards is predicted to take."""
    return (
        f"In {many(shards, 'shard')} of whole blocks, the slowest is predicted to take"
        f" {seconds(split.makespan_s(plan, request, shards))}, everything in one place"
        f" {seconds(split.makespan_s(plan, request, 1))}."
    )
