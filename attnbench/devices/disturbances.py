"""What disturbs work on a CPU: page faults, and waiting for a core where the system tells it."""

import math
import resource
import time
from collections.abc import Callable
from typing import Self

from attnbench.devices.protocol import Meter
from attnbench.devices.system import SYSTEM
from attnbench.devices.timing import FAULT_S
from attnbench.records import Disturbance

FAULTING = 0.01  # a sample is retaken if page faults took this share of its time

Account = tuple[float, int, float]  # CPU seconds, page faults, seconds of waiting for a core


def account() -> Account:
    """What this process has used so far."""
    return time.process_time(), faults(), waited_s()


def share(cpu_s: float, waited_s: float) -> float | None:
    """The share of its time that a process had a core while it wanted to compute, if known."""
    known = cpu_s and not math.isnan(waited_s)
    return cpu_s / (cpu_s + max(0.0, waited_s)) if known else None


def faults() -> int:
    """Page faults that needed no disk."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def kernel_s() -> float:
    """Seconds that the kernel has worked for this process, such as on page faults."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_stime


def waited_s() -> float:
    """Seconds that the threads of this process have waited for a core; NaN where nothing says it.

    What a thread waited is no longer counted once it has ended.
    """
    return SYSTEM.waited_s()


class CoreMeter(Meter):
    """What disturbed the samples of one case on a CPU.

    Whether a sample is retaken depends on page faults alone, never on how long it took compared
    with others.
    """

    def __init__(self, account: Callable[[], Account] = account) -> None:
        self.account = account

    def faults(self) -> int:
        return faults()  # an account would read files for it

    def waited(self) -> float:
        return self.account()[2]

    def __enter__(self) -> Self:
        self.before = self.account()
        return self

    def __exit__(self, *error: object) -> None:
        cpu_s, faults, waited_s = (b - a for a, b in zip(self.before, self.account(), strict=True))
        self.waited_s = None if math.isnan(waited_s) else max(0.0, waited_s)
        self.is_slow = FAULT_S * faults > FAULTING * cpu_s
        self.disturbed = Disturbance.FAULTS if self.is_slow else None
