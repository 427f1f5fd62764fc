"""What disturbs work on a CPU: page faults, and waiting for a core.

Waiting is read from Linux's files; elsewhere it is left out.
"""

import math
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

from attnbench.devices.cgroups import read
from attnbench.devices.protocol import Meter
from attnbench.devices.timing import FAULT_S
from attnbench.records import Disturbance

PROC = Path("/proc")

FAULTING = 0.01  # a sample is retaken if page faults took this share of its time


class Account(NamedTuple):
    """What this process has used so far; None where the system does not say."""

    cpu_s: float
    faults: int
    waited_s: float | None  # of all threads, ready but without a core

    def since(self, before: "Account") -> "Account":
        """What was used since an earlier account."""
        both: Iterator[Any] = zip(before, self, strict=True)
        # what an ended thread waited is no longer counted
        return Account._make(None if None in (a, b) else max(0, b - a) for a, b in both)


def account(proc: Path = PROC) -> Account:
    """The account of this process now."""
    return Account(time.process_time(), faults(), waited_s(proc))


def share(used: Account) -> float | None:
    """The share of its time that a process had a core while it wanted to compute, if known."""
    if used.waited_s is None or not used.cpu_s:
        return None
    return min(1.0, used.cpu_s / (used.cpu_s + used.waited_s))


def faults() -> int:
    """Page faults that needed no disk."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def kernel_s() -> float:
    """Seconds that the kernel has worked for this process, such as on page faults."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_stime


def waited_s(proc: Path = PROC) -> float | None:
    """Seconds that the threads of this process have waited for a core."""
    # time on a core, time waiting for one, turns
    texts = (read(task, "schedstat") for task in (proc / "self" / "task").glob("*"))
    waits = [int(text.split()[1]) for text in texts if text]
    return sum(waits) / 1e9 if waits else None


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
        waited_s = self.account().waited_s
        return math.nan if waited_s is None else waited_s

    def __enter__(self) -> Self:
        self.before = self.account()
        return self

    def __exit__(self, *error: object) -> None:
        used = self.account().since(self.before)
        self.waited_s = used.waited_s
        self.is_slow = FAULT_S * used.faults > FAULTING * used.cpu_s
        self.disturbed = Disturbance.FAULTS if self.is_slow else None
