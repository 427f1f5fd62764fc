"""The folder of a sweep that a cluster measures.

    sweep.toml     the options that the sweep began with
    shard.toml     the options of every shard, with the limits that were last asked for
    fleet.json     how the sweep is divided, and the last job of each shard
    job.sh         what a node runs for a shard
    machine.json   the kind of machine, which the first shard decides
    logs/          the output of each shard
    shard-1/ …     the journals
    sweep.jsonl    all of them merged

Measurements are in the journals alone: a shard is done when its journal says so under no
smaller limits than those asked for, and a later attempt continues the same journal.
"""

import os
import re
import secrets
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from attnbench.errors import DifferentSweep, StoreError, SweepBusy, SweepExists
from attnbench.records import EngineKind, Environment, Many, Request, Sweep, storage
from attnbench.running.request.options import options as known_options
from attnbench.running.request.requests import FILE as BEGUN_WITH
from attnbench.running.request.requests import fields_of_record, from_toml

FILE = "fleet.json"
OPTIONS = "shard.toml"
MACHINE = "machine.json"
SCRIPT = "job.sh"
LOGS = "logs"
LOCK = "fleet.lock"

JOB = """\
#!/bin/sh
# One shard of a sweep: sh job.sh NUMBER, or a task of a Slurm array.
number=${{1:-$SLURM_ARRAY_TASK_ID}}
out={out}
cd {cwd} || exit 2
if ! [ -e "$out/fleet.json" ]; then
    echo "attnbench: there is no $out on $(hostname): choose a folder that all nodes share" >&2
    exit 2
fi
how=--out
if [ -s "$out/shard-$number/sweep.jsonl" ]; then how=--resume; fi
exec {command} --shard "$number/{shards}" "$how" "$out/shard-$number"
"""


@dataclass(frozen=True, kw_only=True)
class Job:
    """The last attempt at a shard: its id in the engine, and which one it is."""

    id: str
    tries: Many = 1


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """A sweep divided into `shards`, and the job of each by its number.

    Its jobs have a `name` that those of no other fleet have; in older files it is empty.
    """

    engine: EngineKind
    shards: Many
    name: str = ""
    jobs: Mapping[int, Job] = field(default_factory=dict)


def job_name(folder: Path) -> str:
    """A new name for the jobs of a fleet, which tells its folder in plain letters."""
    told = re.sub(r"[^A-Za-z0-9_.-]", "-", folder.absolute().name)
    return f"attnbench-{told}-{secrets.token_hex(4)}"


def write(folder: Path, fleet: Fleet) -> None:
    """Store the state of the fleet. Raises `StoreError`."""
    storage.output.write(folder / FILE, msgspec.json.encode(fleet), then=" and --resume")


def read(folder: Path) -> Fleet:
    """The stored state. Raises `StoreError` if there is none that can be read."""
    way_out = "start it without --resume in another folder"
    with storage.output.explained(f"cannot read the fleet of {str(folder)!r}", way_out):
        return msgspec.json.decode((folder / FILE).read_bytes(), type=Fleet)


def begun(folder: Path) -> bool:
    """Whether a fleet was started in the folder."""
    return os.path.exists(folder / FILE)


def refuse_begun(folder: Path) -> None:
    """Raises `SweepExists` if a sweep began in the folder, here or on a cluster."""
    if begun(folder) or storage.begun(folder):
        raise SweepExists(folder)


def options_begun_with(folder: Path) -> dict[str, Any]:
    """The options that a fleet began with.

    Raises `UsageError` or `StoreError` if they cannot be read.
    """
    return {**from_toml(folder / BEGUN_WITH), "on": read(folder).engine}


def options(folder: Path) -> dict[str, Any]:
    """The options that a fleet began with, under the limits that its shards were last given.

    Raises `UsageError` or `StoreError` if they cannot be read.
    """
    return {**options_begun_with(folder), **_limits_of_shards(folder)}


def asked(folder: Path) -> dict[str, Any]:
    """The limits that the shards were last given, by field of a request; only those written.

    Raises `UsageError` if it cannot be read.
    """
    return fields_of_record(Request, _limits_of_shards(folder))


def _limits_of_shards(folder: Path) -> dict[str, Any]:
    """The limits that the shards were last given; none before they are.

    Their other options are not read: an earlier release stored some before it refused them.
    """
    file = folder / OPTIONS
    values = from_toml(file) if file.exists() else {}
    every_option = known_options()
    return {name: value for name, value in values.items() if every_option[name].limit}


@contextmanager
def driven(folder: Path) -> Iterator[None]:
    """Only one process at a time drives a fleet. Raises `SweepBusy`, `StoreError`."""
    with storage.output.writing(folder, storage.output.ELSEWHERE):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            file = storage.LockedFile(folder / LOCK)
        except BlockingIOError:
            raise SweepBusy(
                f"another process drives the shards in {str(folder)!r}; wait for it, or end it"
            ) from None
    with closing(file):
        yield


def prepare(folder: Path, fleet: Fleet, command: Sequence[str]) -> None:
    """Write what the jobs need: folders, state and script. Raises `StoreError`."""
    with storage.output.writing(folder):
        (folder / LOGS).mkdir(exist_ok=True)
    write(folder, fleet)
    storage.output.write(folder / SCRIPT, script(folder, fleet.shards, command).encode())


def script(folder: Path, shards: int, command: Sequence[str]) -> str:
    """What a node runs: the command for one shard, in this process's working directory."""
    out, cwd = (shlex.quote(os.path.abspath(path)) for path in (folder, "."))
    return JOB.format(out=out, cwd=cwd, command=shlex.join(command), shards=shards)


def shard_folder(folder: Path, number: int) -> Path:
    """Where a shard is measured."""
    return folder / f"shard-{number}"


def log(folder: Path, number: int | str) -> Path:
    """The file of a shard's output; `number` may be a placeholder such as `%a`."""
    return folder / LOGS / f"shard-{number}.log"


def stored(folder: Path, number: int) -> Sweep | None:
    """What a shard has measured so far; None before its journal can be read."""
    with suppress(StoreError):
        return storage.load(shard_folder(folder, number))
    return None


def is_measured(folder: Path, number: int, fields: Mapping[str, Any]) -> bool:
    """Whether a shard ended, by its journal, and at no smaller limits than `asked` now."""
    sweep = stored(folder, number)
    if sweep is None or not sweep.finished:
        return False
    return not storage.has_smaller_limits(sweep.request, fields)


def claim(folder: Path, environment: Environment) -> None:
    """Let the first shard decide for all. Raises `DifferentSweep` if this one differs from it.

    Shards without a common folder are compared when they are merged.
    """
    if not begun(folder):
        return
    with storage.output.writing(folder):
        mine = folder / f".machine-{secrets.token_hex(6)}"
        mine.write_bytes(msgspec.json.encode(environment))
        with suppress(FileExistsError):
            os.link(mine, folder / MACHINE)  # whole or not at all, and for one shard only
        mine.unlink()
        first = msgspec.json.decode((folder / MACHINE).read_bytes(), type=Environment)
    if changes := storage.machine_differences(first, environment):
        raise DifferentSweep(
            f"the first shard ran on another kind of machine ({'; '.join(changes)}):"
            " allocate nodes of one kind with one attnbench, and sweep each kind into its own"
            " folder"
        )
