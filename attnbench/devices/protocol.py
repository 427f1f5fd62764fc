"""What differs between devices: one class for each kind of device.

Processes that never load torch use these classes too: their files import torch only within the
methods that a measuring process calls.
"""

import sys
import sysconfig
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, Self

from attnbench.records import Case, Clock, Disturbance, Sample

PHASES = ("forward", "backward", "step")  # of an iteration, which a sample keeps

ValuesAndNotes = tuple[dict[str, float], dict[str, str]]  # `Run.values` and `Run.notes`
Lap = Callable[[str], None]  # called with the name of each phase as it ends
Iterate = Callable[[Lap], Any]  # one iteration


class Unavailable(Exception):
    """The system does not provide something about a device; the text gives the reason."""


Build = Callable[[Case], Any]  # of what iterates, a `Subject` of `measuring.subject`


class Stopwatch(Protocol):
    """Times a sample of iterations: `reset`, for each one `start` and a `lap` at the end of each
    phase (forward, backward, step), then `sample`.

    A device with a queue may first need samples to calibrate how to hide launches (`calibrating`).
    While it `hides_launches`, a sample with `hide=False` shows the wall time.
    """

    @property
    def calibrating(self) -> bool: ...
    @property
    def hides_launches(self) -> bool: ...

    def reset(self, iterations: int, hide: bool = True) -> None: ...
    def start(self) -> None: ...
    def lap(self, phase: str) -> None: ...
    def sample(self, iterations: int) -> Sample: ...


class Meter:
    """What a device reports of the samples of one case, added up over `with` blocks around them.

    This one is for a device that reports nothing. `is_slow`: whether the last sample was disturbed,
    for instance by a low clock, and should be retaken once. `disturbed` and `waited_s` are those of
    the sample, where they are known.
    """

    is_slow = False
    disturbed: Disturbance | None = None
    waited_s: float | None = None

    def faults(self) -> int:
        """Page faults of this process so far, where they add to a sample's time; else 0."""
        return 0

    def waited(self) -> float:
        """Seconds that the threads of this process have waited for a core so far, if known."""
        return 0.0

    def judge_sample(self, sample: Sample) -> None:
        """Judge the last sample by what its stopwatch says of the device."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def values(self) -> Mapping[str, float]:
        """Clock, power, energy and so on, under keys of `records.metrics.TABLE`."""
        return {}

    def notes(self) -> Mapping[str, str]:
        """Why the clock was low, if it was, for `Run.notes`."""
        return {}


class Device(ABC):
    """One device; the defaults are those of an accelerator with a clock.

    `name` is what users and workloads call it, `index` its number among those of the same kind.
    """

    preference = 0  # `auto` takes the present device with the highest preference
    tokens = 1 << 17  # default c = B · N of a sweep, for layers of usual width
    budget_s: float | None = None  # default budget of a sweep
    threshold = 0.03  # relative change of time that the gate ignores: clock rates vary
    clock = "device time"  # what the gate compares
    threads: int | None = None  # default of a sweep; None: all cores
    flushes_cache = False  # whether `cold` samples can be taken
    captures = False  # whether iterations can be captured in graphs
    counts_energy = False  # whether `joules` may be known
    context_bytes = 0  # device memory that a process takes before any tensor, until measured
    start_s = 0.0  # seconds until a new process can use the device, a guess
    shared = 0.85  # share of its memory that the processes of one race may use together
    gpus = 1  # that a scheduler must allocate to a process
    matmul_size = 8192  # rows of the square product that measures peak arithmetic
    copy_elements = 1 << 28  # float32 numbers of the copy that measures peak bandwidth
    peak_calls = 20  # consecutive calls whose mean rate counts as a peak rate
    bytes_per_s = 2e12  # of a large copy, guessed for a machine that has not been measured

    def __init__(self, name: str) -> None:
        self.name = name
        self.index = int(name.partition(":")[2] or 0)

    @property
    def torch_name(self) -> str:
        """torch's name for the device."""
        return self.name

    @abstractmethod
    def missing(self) -> str:
        """Why this machine cannot use the device; empty if it can. Does not load torch."""

    def title(self) -> str:
        """The name of the product, on which times depend. Does not load torch."""
        return self.name

    def sampling(self, quick: bool, bounded: bool) -> Mapping[str, Any]:
        """Fields of `Settings` for a `quick` sweep, or one `bounded` by a budget or quick."""
        sample_s, warmup_s = (0.5, 1.0) if bounded else (3.0, 3.0)
        return {"sample_s": sample_s, "warmup_s": warmup_s, "interval_s": 0.001}

    def usual_tokens(self, width: int) -> int:
        """The default c = B · N of a sweep of layers of this width."""
        return self.tokens

    def host_clock(self, threads: int) -> Clock:
        """The clock of samples without device time, on this number of threads of the host."""
        return Clock.WALL

    def flops_per_s(self, threads: int) -> float:
        """FLOP/s of a large product, a guess like `bytes_per_s`."""
        return 40e12

    def memory_bytes(self) -> int | None:
        """Bytes of memory that a process may use; None if unknown. Does not load torch."""
        return None

    def cannot_compile(self) -> str:
        """Why torch cannot compile for the device; empty if it can. Does not load torch."""
        return ""

    @staticmethod
    def missing_headers_reason() -> str:
        """Why Python.h is unavailable, or empty."""
        if Path(sysconfig.get_path("include"), "Python.h").exists():
            return ""
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return (
            "torch.compile needs the C headers of Python (Python.h): install them, for instance"
            f" python{version}-dev"
        )

    # the rest is for measuring processes

    def select(self) -> None:
        """Make this the process's current device."""

    @abstractmethod
    def stopwatch(self, cold: bool = False, clock: Clock = Clock.WALL) -> Stopwatch:
        """A stopwatch; with `cold`, one that flushes the device's cache before each iteration.

        `clock` counts where the device has none of its own.
        """

    def synchronise(self) -> None:
        """Wait until the device has finished all enqueued work."""

    def meter(self) -> Meter:
        """A meter that adds up the device's reports of the samples of a case."""
        return Meter()

    def captured(self, subject: Any) -> Iterate:
        """An iteration as graphs; only where `captures`."""
        raise NotImplementedError

    def notes(self, watch: Stopwatch) -> Mapping[str, str]:
        """Notes on the stopwatch's samples, for `Run.notes`."""
        return {}

    @abstractmethod
    def profile_memory(self, build: Build, case: Case) -> ValuesAndNotes:
        """Measure peak memory in bytes, operators and bytes moved of one iteration."""

    def joules(self) -> float:
        """Energy that the device has used so far; only where `counts_energy`.

        Raises `Unavailable`.
        """
        raise NotImplementedError

    def release(self) -> None:
        """Free unused device memory that torch caches, which other processes may need."""

    def facts(self) -> Mapping[str, Any]:
        """Fields of `Environment` that describe the device; its memory is what is free of it."""
        return {"device": self.title()}
