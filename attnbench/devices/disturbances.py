"""What disturbs work on a CPU: page faults, waiting for a core, other guests, a slow core.

Waiting and stolen time are read from Linux's files; elsewhere they are left out.
"""

import math
import os
import resource
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import NamedTuple, Self

from attnbench.devices.cgroups import read
from attnbench.devices.protocol import Meter
from attnbench.devices.timing import FAULT_S
from attnbench.records import Disturbance

PROC = Path("/proc")

# A sample is taken again if page faults took this share of its time,
FAULTING = 0.01
# or if the probe beside it took so much longer than usual. What a core is slower by, beside other
# load, is mostly less: ratios take it into account (`ratios.SLOPE`). Where laps beside a probe
# slower by 6 % were taken again, that was 60 % of them on a busy host, and nothing was gained.
SLOW = 0.25
PARTS = 4  # of a probe
FIRST, LATELY = 8, 41  # probes at the start, and those whose lower quartile is usual
TAKES = 3  # of one sample
# Samples taken again may take this share of the time of those that are kept: a core that is slow
# more often is a slow core, and that the processes of a race take turns evens it out.
AGAIN = 0.5
# longer samples are not taken again because of a probe, which saw too little of them
PROBED_S = 0.5


class Account(NamedTuple):
    """What this process has used so far; None where the system does not say."""

    wall_s: float
    cpu_s: float
    faults: int
    waited_s: float | None  # of all threads, ready but without a core
    stolen_s: float | None  # of all cores, by other guests of the host


def between(before: Account, after: Account) -> Account:
    """What was used from one account to the next."""

    def grown(then: float | None, now: float | None) -> float | None:
        # what an ended thread waited is no longer counted
        return None if then is None or now is None else max(0.0, now - then)

    return Account(
        after.wall_s - before.wall_s,
        after.cpu_s - before.cpu_s,
        after.faults - before.faults,
        grown(before.waited_s, after.waited_s),
        grown(before.stolen_s, after.stolen_s),
    )


def account(proc: Path = PROC) -> Account:
    """The account of this process now."""
    return Account(
        time.perf_counter(), time.process_time(), faults(), waited_s(proc), stolen_s(proc)
    )


def faults() -> int:
    """Page faults that needed no disk."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def waited_s(proc: Path = PROC) -> float | None:
    """Seconds that the threads of this process have waited for a core."""
    # time on a core, time waiting for one, turns
    texts = (read(task, "schedstat") for task in (proc / "self" / "task").glob("*"))
    waits = [int(text.split()[1]) for text in texts if text]
    return sum(waits) / 1e9 if waits else None


def stolen_s(proc: Path = PROC) -> float | None:
    """Seconds that a hypervisor has taken from the cores of this machine."""
    fields = read(proc, "stat").partition("\n")[0].split()
    return int(fields[8]) / os.sysconf("SC_CLK_TCK") if len(fields) > 8 else None


class Probe:
    """A fixed piece of work, about 4 ms of CPU time, that tells how fast the core is now.

    It runs a quarter of it untimed first, since a lap leaves the caches full of its own.
    """

    def __init__(
        self,
        work: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.process_time,
    ) -> None:
        self.work, self.clock = work or fixed_work(), clock
        self.lately: deque[float] = deque(maxlen=LATELY)
        for _ in range(FIRST):
            self.look()
        self.lately.popleft()  # it mapped the pages

    def look(self) -> float:
        """The CPU time of the work now, in seconds."""
        self.work()
        begun = self.clock()
        for _ in range(PARTS):
            self.work()
        self.lately.append(self.clock() - begun)
        return self.lately[-1]

    @property
    def usual_s(self) -> float:
        """The lower quartile of the last looks."""
        return sorted(self.lately)[len(self.lately) // 4]


def fixed_work() -> Callable[[], None]:
    """A small product, a copy of 4 MiB and GELU, which allocate nothing."""
    import torch

    a, b, out = (torch.full(size, 0.5) for size in ((1024, 256), (256, 256), (1024, 256)))
    source, target = torch.full((1 << 20,), 0.5), torch.empty(1 << 20)

    def work() -> None:
        torch.mm(a, b, out=out)
        target.copy_(source)
        torch.ops.aten.gelu.out(a, out=out)

    return work


class CoreMeter(Meter):
    """What disturbed the samples of one case on a CPU; with a `probe`, also how fast the core was.

    Whether a sample is taken again depends on what is read here alone, never on how long it took
    compared to others.
    """

    def __init__(
        self, probe: Probe | None = None, account: Callable[[], Account] = account
    ) -> None:
        self.probe, self.account = probe, account
        self.used: list[Account] = []  # by each sample, also those taken again
        self.probes: list[float] = []  # of each sample: the mean of those before and after
        self.last_s = self.kept_s = self.again_s = 0.0

    def ready(self) -> None:
        if self.probe is not None:
            self.last_s = self.probe.look()

    def faults(self) -> int:
        return self.account().faults

    def waited(self) -> float:
        waited_s = self.account().waited_s
        return math.nan if waited_s is None else waited_s

    def __enter__(self) -> Self:
        self.before = self.account()
        return self

    def __exit__(self, *error: object) -> None:
        used = between(self.before, self.account())
        self.used.append(used)
        self.waited_s = used.waited_s
        slow = False
        if self.probe is not None:
            before_s, self.last_s = self.last_s, self.probe.look()
            self.probe_s = (before_s + self.last_s) / 2
            self.probes.append(self.probe_s)
            slow = self.probe_s > (1 + SLOW) * self.probe.usual_s
        faulting = FAULT_S * used.faults > FAULTING * used.cpu_s
        self.disturbed = Disturbance.SLOW_CORE if slow else None
        if faulting:
            self.disturbed = Disturbance.FAULTS
        self.is_slow = faulting or (slow and used.cpu_s < PROBED_S)

    def again(self, take: int, left_s: float) -> bool:
        took_s = self.used[-1].wall_s
        fits = take < TAKES and self.again_s <= AGAIN * self.kept_s and 2 * took_s < left_s
        if self.is_slow and fits:
            self.again_s += took_s
            return True
        self.kept_s += took_s
        return False

    def values(self) -> Mapping[str, float]:
        found = {"retaken_s": self.again_s}
        if cpu_s := sum(used.cpu_s for used in self.used):
            found["fault_share"] = FAULT_S * sum(used.faults for used in self.used) / cpu_s
        stolen = [used.stolen_s for used in self.used if used.stolen_s is not None]
        if stolen:
            cores_s = sum(used.wall_s for used in self.used) * (os.cpu_count() or 1)
            found["stolen_share"] = sum(stolen) / cores_s
        if self.probes:
            found["probe_s"] = median(self.probes)
        return found
