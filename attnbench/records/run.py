"""What one process measured: a run, its samples, and how it ended."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from attnbench.records.bounds import Count, Duration, Many, Number, Seconds

# CPU time is not trusted if a process neither computed nor waited for a core for more than this
# share of the wall time: under a load of 9, the gap between the two readings was up to 1.3 % of a
# lap.
AWAY = 0.05

# Before each sample of iterations shorter than this one more runs untimed: other processes have
# used the caches, and the first one takes up to 1.2 times as long.
REHEARSED_S = 0.1

# The note `arithmetic` of fused attention that multiplies float32 on tensor cores: each number is
# split into two in TF32, and three products of theirs stand for one.
SPLIT = "3xTF32"


class Outcome(StrEnum):
    """How a run ended; all of them are results."""

    OK = "ok"
    OOM = "oom"  # memory ran out
    TIMEOUT = "timeout"  # killed at its time limit
    CRASHED = "crashed"  # the process died
    FAILED = "failed"  # wrong shape, not finite, or an exception
    UNSUPPORTED = "unsupported"  # this machine or mechanism cannot run it
    SKIPPED = "skipped"  # not started: predicted to exceed a limit, or a shorter length did


MISSING = "missing"  # in place of an `Outcome`, for a case of the plan without a run


class Cause(StrEnum):
    """Why a case was not started, or why its process was killed."""

    BUDGET = "budget"  # it did not fit into the time of the whole sweep
    CASE_TIMEOUT = "case timeout"  # it would exceed the time limit of one case
    MEMORY_LIMIT = "memory limit"  # it would not fit into memory
    OOM = "oom"  # a shorter length ran out of memory
    TIMEOUT = "timeout"  # a shorter length exceeded its time limit
    OVERTIME = "overtime"  # it took several times what was predicted, and was ended
    KILLED = "killed"  # by SIGKILL or together with all others: its own code may not be the reason


class Part(StrEnum):
    """What one process measures of a case."""

    TIME = "time"
    MEMORY = "memory"  # peaks and counts of one iteration


class Clock(StrEnum):
    """What counts as the time of a sample that has no device time."""

    WALL = "wall time"
    CPU = "CPU time"  # of the process, summed over threads


class Disturbance(StrEnum):
    """What made a sample on a CPU longer than the work in it."""

    FAULTS = "page faults"
    SLOW_CORE = "a slow core"


@dataclass(frozen=True, order=True)
class Shard:
    """Part `number`, from 1, of a sweep that is divided among `of` processes."""

    number: Many
    of: Many

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a run was measured; only GPUs have a UUID."""

    host: str = ""
    device_uuid: str = ""
    shard: Shard | None = None  # None: the sweep was not divided
    attempt: Many = 1  # sessions of this journal so far

    @property
    def node(self) -> str:
        """The host, and its device if that has a UUID."""
        return " ".join(filter(None, (self.host, self.device_uuid)))


class Sample(NamedTuple):
    """One timed interval of `iterations` in a row; all times are of the whole interval.

    Runs of one round with the same mode and length took turns: their samples with the same `lap`
    were taken one after the other. Without a lap a run was measured by itself.

    A GPU may be held until work is enqueued, so that `device_s` includes no launches. Then `wall_s`
    includes the holds, and `unheld_s` is one iteration's wall time without, measured separately.

    Phases are timed by the device, or by `clock`. A sample that is `disturbed` was so however often
    it was retaken in the time there was.
    """

    iterations: Many
    wall_s: Duration
    cpu_s: Seconds  # of the process, summed over threads
    device_s: Duration | None  # between device events; None on a CPU
    forward_s: Seconds
    backward_s: Seconds
    step_s: Seconds
    lap: Count | None = None
    enqueue_s: Seconds | None = None  # until the host had enqueued everything; None on a CPU
    unheld_s: Duration | None = None  # None where nothing was held
    clock: Clock = Clock.WALL  # which time counts, where there is no device time
    waited_s: Seconds | None = None  # by its threads, for a core; None where unknown
    disturbed: Disturbance | None = None
    probe_s: Duration | None = None  # of earlier versions; keeps its place in journals
    pace_s: Duration | None = None  # fixed work on its core meanwhile, to tell the core's speed
    clock_hz: Duration | None = None  # of a GPU's multiprocessors, right after its last iteration

    @property
    def seconds(self) -> float:
        """Seconds of one iteration: device time where the device has a clock, else by `clock`.

        CPU time misses the time in which a process sleeps or lets others compute: if that is more
        than `AWAY` of the wall time, it counts too.
        """
        if self.device_s is not None:
            counted_s = self.device_s
        elif self.clock == Clock.WALL:
            counted_s = self.wall_s
        else:
            away_s = self.away_s if self.away_s > AWAY * self.wall_s else 0.0
            counted_s = self.cpu_s + away_s or self.wall_s
        return counted_s / self.iterations

    @property
    def away_s(self) -> float:
        """Wall time in which the process neither computed nor waited for a core; 0 if unknown."""
        if self.waited_s is None:
            return 0.0
        return max(0.0, self.wall_s - self.cpu_s - self.waited_s)

    @property
    def unheld_wall_s(self) -> float:
        """Wall time of one iteration, without holds."""
        return self.wall_s / self.iterations if self.unheld_s is None else self.unheld_s


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one process measured of one part of one case in one round.

    `values` holds single numbers under keys of `records.metrics.TABLE`; `notes` holds text, such
    as the kernel that ran. `elapsed_s` is the time that the parent waited for the process.
    """

    case: str
    part: Part
    round: Count
    outcome: Outcome
    cause: Cause | None = None  # of a case that was not started, or was killed
    reason: str = ""
    samples: tuple[Sample, ...] = ()
    values: Mapping[str, Number] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    elapsed_s: Seconds = 0.0
    origin: Origin = Origin()
