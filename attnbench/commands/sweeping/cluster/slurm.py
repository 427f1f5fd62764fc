"""Slurm through its own commands: one job array, which is never requeued.

Slurm would hold a lost job for two minutes and may return it to the node that lost it, so lost
shards are resubmitted. The batch step of a job has all of its cores and devices; `srun` would need
options for them, and is not needed for one process.
"""

import shlex
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from attnbench.commands.sweeping.cluster import folder as fleets
from attnbench.commands.sweeping.cluster.engine import ACTIVE, JobState
from attnbench.errors import CannotRun, UsageError

TIMEOUT_S = 120.0  # of one command, on a busy controller
WAITING = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SUSPENDED"})
RUNNING = frozenset({"RUNNING", "COMPLETING", "STAGE_OUT", "SIGNALING", "RESIZING", "STOPPED"})
FORGOTTEN = "Invalid job id"  # Slurm forgets jobs some minutes after their end


class Slurm:
    """The cluster of `sbatch`; `options` are further ones for it, as on its command line.

    A shard has a node of its own, or shares it with those that use other GPUs, with `cpus` cores.
    Raises `CannotRun` where there is no cluster, and `UsageError` at options that do not parse.
    """

    ends = "scancel"

    def __init__(self, options: str = "", gpus: int = 0, cpus: int = 1) -> None:
        if shutil.which("sbatch") is None:
            raise CannotRun(
                "--on slurm: there is no sbatch on the PATH; run this where Slurm's commands are,"
                " or start each shard yourself with --shard I/N"
            )
        try:
            user_options = shlex.split(options)
        except ValueError as error:
            raise UsageError(f"--slurm {options!r} does not parse: {error}") from error
        self.alone = not gpus and not {"--oversubscribe", "-s"} & {*user_options}
        # of two that contradict each other, sbatch obeys the later
        exclusive = ["--exclusive"] if self.alone else []
        self.options = [f"--cpus-per-task={cpus}", *exclusive, *user_options]
        run_command("sinfo", "--noheader", "--summarize")

    def submit(self, folder: Path, shards: Collection[int]) -> Iterator[tuple[int, str]]:
        """One array, a task for each shard that has none in the queue. Raises `CannotRun`.

        It may have one where an earlier array was accepted and the answer of sbatch was lost.
        """
        folder = folder.absolute()
        stored = fleets.read(folder).name
        name = stored or f"attnbench-{folder.name}"
        queued = queued_tasks(name) if stored else {}
        yield from ((shard, queued[shard]) for shard in shards if shard in queued)
        shards = [shard for shard in shards if shard not in queued]
        if not shards:
            return
        plain = Path(str(folder).replace("%", "%%"))
        array = run_command(
            *("sbatch", "--parsable", "--no-requeue", "--open-mode=append"),
            f"--array={','.join(map(str, shards))}",
            f"--job-name={name}",
            f"--output={fleets.log(plain, '%a')}",
            *self.options,
            str(folder / fleets.SCRIPT),
        )
        number = array.strip().partition(";")[0]
        yield from ((shard, f"{number}_{shard}") for shard in shards)

    def states(self, ids: Collection[str]) -> Mapping[str, JobState]:
        """What the queue shows of each job. Raises `CannotRun`."""
        arrays = ",".join(sorted({id_.partition("_")[0] for id_ in ids}))
        try:
            queue = run_command("squeue", "-h", "-r", "-t", "all", "-j", arrays, "-o", "%i|%T")
        except CannotRun as error:
            if FORGOTTEN not in str(error):
                raise
            queue = ""
        states = dict(line.split("|") for line in queue.splitlines())
        return {id_: job_state(states.get(id_, "")) for id_ in ids}


def queued_tasks(name: str) -> dict[int, str]:
    """The ids of the tasks of this name that wait or run, by their numbers. Raises `CannotRun`."""
    # all: what squeue shows by default can be set in the environment
    queue = run_command("squeue", "-h", "-r", "-t", "all", f"--name={name}", "-o", "%i|%T")
    states = dict(line.split("|") for line in queue.splitlines())
    tasks = {id_: id_.partition("_")[2] for id_ in states}
    return {
        int(task): id_
        for id_, task in tasks.items()
        if task.isdecimal() and job_state(states[id_]) in ACTIVE
    }


def job_state(state: str) -> JobState:
    """The state of a job by Slurm's name for it."""
    if state in WAITING:
        return JobState.WAITING
    if state in RUNNING:
        return JobState.RUNNING
    return JobState.CANCELLED if state == "CANCELLED" else JobState.ENDED


def run_command(*command: str) -> str:
    """What a command of Slurm prints. Raises `CannotRun` with the line that says why it failed."""
    try:
        process = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True
        )
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or [f"exit {error.returncode}"]
        raise CannotRun(f"{command[0]}: {lines[-1]}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotRun(f"{command[0]} does not answer: {error}") from error
    return process.stdout
