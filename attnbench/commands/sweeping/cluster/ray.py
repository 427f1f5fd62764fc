"""Ray through its job submission interface: a job is a command that Ray gives a device."""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from attnbench.commands.sweeping.cluster import folder as fleets
from attnbench.commands.sweeping.cluster.engine import JobState
from attnbench.errors import CannotRun

UNKNOWN = "does not exist"
# of a failed job that waited for its resources longer than RAY_JOB_START_TIMEOUT_SECONDS
UNSTARTED = "JOB_SUPERVISOR_ACTOR_START_TIMEOUT"


class Ray:
    """The cluster at the address in RAY_ADDRESS, by default this machine's.

    A shard gets `gpus` GPUs and `cpus` cores. Raises `CannotRun` where Ray is not installed or
    does not answer.
    """

    alone = False
    ends = "ray job stop"

    def __init__(self, gpus: int = 0, cpus: int = 1) -> None:
        try:
            from ray.job_submission import JobSubmissionClient
        except ImportError as error:
            raise CannotRun("--on ray needs Ray: pip install 'attnbench[ray]'") from error
        self.gpus = gpus
        self.cpus = cpus
        self.client = self.call(JobSubmissionClient)

    def submit(self, folder: Path, shards: Collection[int]) -> Iterator[tuple[int, str]]:
        """One job for each shard. Raises `CannotRun`."""
        folder = folder.absolute()
        script = quote(str(folder / fleets.SCRIPT))
        resources = {"entrypoint_num_cpus": self.cpus, "entrypoint_num_gpus": self.gpus}
        for number in shards:
            log = quote(str(fleets.log(folder, number)))
            command = f"sh {script} {number} >> {log} 2>&1"
            yield number, self.call(self.client.submit_job, entrypoint=command, **resources)

    def states(self, ids: Collection[str]) -> Mapping[str, JobState]:
        """What the cluster says of each job; a new one knows none of the old one's."""
        states = {}
        for id_ in ids:
            try:
                states[id_] = job_state(self.call(self.client.get_job_info, id_))
            except CannotRun as error:
                if UNKNOWN not in str(error):
                    raise
                states[id_] = JobState.ENDED
        return states

    def call(self, question: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """The client's answer. Raises `CannotRun` with Ray's reason."""
        try:
            return question(*arguments, **options)
        except (OSError, RuntimeError, ValueError) as error:
            *_, reason = str(error).strip().splitlines() or [type(error).__name__]
            where = os.environ.get("RAY_ADDRESS", "its default address")
            raise CannotRun(f"Ray at {where}: {reason}") from error


def job_state(job: Any) -> JobState:
    """The state of a job by Ray's `JobDetails`."""
    states = {"PENDING": "waiting", "RUNNING": "running", "STOPPED": "cancelled"}
    if job.error_type == UNSTARTED:
        return JobState.UNSTARTED
    return JobState(states.get(job.status.name, "ended"))
