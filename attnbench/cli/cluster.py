"""What `sweep` does on a cluster: start the shards, show their progress, merge, and report."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
from attnbench.fleet.drive import Drive, FleetProgress
from attnbench.fleet.engine import Engine
from attnbench.fleet.folder import Fleet
from attnbench.records import Cluster, EngineKind, Planned, Request
from attnbench.render import grid
from attnbench.render.terminal import ProgressLine
from attnbench.store.merging import merge
from attnbench.units import many, seconds
from attnbench.workloads import config
from attnbench.workloads.options import options

GRACE_S = 5.0  # for a second Ctrl-C
COUNTED = 300  # most units for which the useful number of shards is sought, in quadratic time


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


def command(given: Mapping[str, Any], device: str) -> list[str]:
    """The command that every shard runs: the sweep with its options and the chosen device."""
    command = [sys.executable, "-m", "attnbench", "sweep", "--device", device]
    for name, option in options().items():
        if name in given and name != "device" and option.affects_measurement:
            command += option.words(given[name]) if given[name] != option.default else []
    return command


def new_or_stored_fleet(
    folder: Path, kind: EngineKind, shards: int | None, *, resuming: bool
) -> Fleet:
    """The stored state of a fleet to resume, or a new one.

    Raises `SweepExists`, `StoreError`, `DifferentSweep` with another engine or number of shards.
    """
    if not resuming:
        if shards is None:
            raise UsageError(
                f"--on {kind} needs --shards, the number of parts; --dry-run shows them"
            )
        if fleets.begun(folder):
            raise SweepExists(folder)
        return Fleet(engine=kind, shards=shards)
    fleet = fleets.read(folder)
    asked = {"engine": (fleet.engine, kind), "shards": (fleet.shards, shards or fleet.shards)}
    differences = [f"{name}: {a} there, {b} here" for name, (a, b) in asked.items() if a != b]
    if differences:
        raise DifferentSweep(
            f"cannot resume the fleet in '{folder}' as another one ({'; '.join(differences)});"
            " repeat its options, or sweep into another folder with --out"
        )
    return fleet


def run_fleet(
    folder: Path,
    fleet: Fleet,
    engine: Engine,
    request: Request,
    plan: Sequence[Planned],
    command: Sequence[str],
    options_file: bytes,
) -> AttnbenchError | None:
    """Run every shard to its end and merge them in the folder, next to the sweep's options.

    Returns the error to raise at the end if not all were measured. Raises `CannotRun`.
    """
    parts = split.split(split.units(plan, request), fleet.shards)
    drive = Drive(
        folder=folder, fleet=fleet, engine=engine, request=request, plan=plan, parts=parts
    )
    alone = " and alone on its node (--slurm --oversubscribe lets it share)" * engine.alone
    console.err().print(
        f"{many(fleet.shards, 'shard')} on {fleet.engine}, each on {request.device}{alone};"
        f" {sizes(request)}, {many(request.rounds, 'round')};"
        f" predicted {seconds(split.makespan_s(parts))}; into {folder}"
    )
    with fleets.driven(folder):
        fleets.prepare(folder, fleet, command)
        store_options(folder, options_file)
        with stoppable(lambda: still_running(drive)), show_progress(drive), interruptible(drive):
            try:
                drive.run()
            except CannotRun as error:
                if drive.fleet.jobs:
                    raise CannotRun(f"{error}; {still_running(drive)}") from error
                (folder / config.FILE).unlink(missing_ok=True)
                fleets.abandon(folder)
                raise
    numbers = range(1, fleet.shards + 1)
    begun = [n for n in numbers if (sweep := drive.sweeps[n]) and sweep.plan]
    stored = [fleets.shard_folder(folder, number) for number in begun]
    runs = 0
    if stored:
        merged = merge(stored, folder, again=True)
        runs, hosts = len(merged.runs), {run.origin.host for run in merged.runs}
        console.err().print(
            f"{many(len(stored), 'shard')} merged in {folder}: {many(runs, 'run')} of"
            f" {many(len(merged.plan), 'case')} from {many(len(hosts), 'node')}",
            soft_wrap=True,  # a folder in two lines cannot be copied
        )
    if not drive.failed:
        return None
    number, why = min(drive.failed.items())
    more = f" (and {many(len(drive.failed) - 1, 'other')})" if len(drive.failed) > 1 else ""
    kept = f"merged: {many(runs, 'run')}" if stored else "nothing was measured"
    said = f"shard {number}/{fleet.shards}{more} {why}; {kept}; {resuming(folder)}"
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


@contextmanager
def interruptible(drive: Drive) -> Iterator[None]:
    """After Ctrl-C the shards keep running; a second one cancels them."""
    try:
        yield
    except KeyboardInterrupt:
        with stoppable(lambda: f"the shards were cancelled; {resuming(drive.folder)}"):
            try:
                console.err().print(
                    "the shards keep running without this process;"
                    f" Ctrl-C again within {GRACE_S:.0f} s cancels them"
                )
                time.sleep(GRACE_S)
            except KeyboardInterrupt:
                drive.cancel()
                raise
        raise


def still_running(drive: Drive) -> str:
    """What is still running after an interruption, and how to resume."""
    if not drive.fleet.jobs:
        return "no shard was submitted"
    ids = ", ".join(
        job.id for number, job in drive.fleet.jobs.items() if number in drive.unfinished
    )
    going = f"jobs {ids} keep running; " if ids else ""
    return going + resuming(drive.folder)


def resuming(folder: Path) -> str:
    """The command that resumes."""
    return f"attnbench sweep --resume '{folder}' continues"


@contextmanager
def show_progress(drive: Drive) -> Iterator[None]:
    """Show progress while the shards run."""
    with ProgressLine(console.err()) as line:

        def observe(p: FleetProgress) -> None:
            running = f"{p.running} of {many(p.shards, 'shard')} running"
            line.show("", running, f"{p.runs} of {many(p.of, 'run')}", p.left_s)

        drive.observe = observe
        yield


def shards_table(units: Sequence[split.BlockRound], parts: Sequence[split.Units]) -> grid.Table:
    """What each shard would measure, and how long it is predicted to take."""
    rows = tuple(
        (
            grid.Cell(str(number), number),
            grid.Cell(str(len(part)), len(part)),
            grid.Cell(seconds(split.total_s(part)), split.total_s(part)),
            grid.words(rounds_label(part)),
        )
        for number, part in enumerate(parts, 1)
    )
    note = (
        f"The slowest shard is predicted to take {seconds(split.makespan_s(parts))}, everything in"
        f" one place {seconds(split.total_s(units))}."
    )
    if len(units) <= COUNTED:
        note += (
            f" More than {many(split.most_useful(units), 'shard')} would not be faster: the longest"
            f" unit takes {seconds(split.longest_s(units))}."
        )
    columns = ("shard", "units", "time", "rounds of mode and length")
    return grid.Table(name="shards", title="Shards", columns=columns, rows=rows, note=note)


def rounds_label(part: split.Units) -> str:
    """`training 128: 1, 3; inference 128: 2`."""
    rounds = split.rounds(part)
    parts = (
        f"{block.mode} {block.seq_len:,}: {', '.join(str(r + 1) for r in rounds[block])}"
        for block in sorted(rounds)
    )
    return "; ".join(parts)
