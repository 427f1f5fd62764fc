"""What a sweep over several machines requires of a cluster's job scheduler."""

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Protocol


class JobState(StrEnum):
    """What a job is doing; only its journal says whether it succeeded."""

    WAITING = "waiting"
    RUNNING = "running"
    UNSTARTED = "unstarted"  # ended by the engine, which had no device for too long
    ENDED = "ended"  # also of a job that the engine no longer knows
    CANCELLED = "cancelled"  # by a person


ACTIVE = (JobState.WAITING, JobState.RUNNING)


class Engine(Protocol):
    """Runs `job.sh NUMBER` of a fleet's folder once for each shard, on its own device.

    It never repeats a job by itself. Every method raises `CannotRun` if the engine does not answer.
    """

    alone: bool  # whether each shard has a machine of its own
    ends: str  # the command by which a person ends a job

    def submit(self, folder: Path, shards: Collection[int]) -> Iterator[tuple[int, str]]:
        """Starts a job for each shard; yields shard and id of each as soon as it is submitted."""

    def states(self, ids: Collection[str]) -> Mapping[str, JobState]:
        """What each of these jobs is doing."""
