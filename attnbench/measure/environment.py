"""This machine: what the process may use of it, versions, and measured peak rates.

`memory_bytes` respects a container's limits.
"""

import os
import platform
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from attnbench import __version__
from attnbench.device import Device, find
from attnbench.records import Clock, Environment
from attnbench.run.cgroups import cores, free_bytes, read

if TYPE_CHECKING:
    import torch

PROC = Path("/proc")
PEAK_S = 0.15  # per peak rate: precise enough, and short enough before every sweep
LOOK_S = 0.25  # the kernel counts in hundredths of a second


def memory_bytes() -> int:
    """Memory that this process may still use, within a container's limit."""
    available = proc_bytes("meminfo", "MemAvailable") or os.sysconf("SC_PAGE_SIZE") * os.sysconf(
        "SC_PHYS_PAGES"
    )
    left = free_bytes()
    return available if left is None else min(available, left)


def processor() -> str:
    """The processor's name."""
    return _proc("cpuinfo", "model name") or platform.processor() or platform.machine()


def host() -> str:
    """The name of this node: the scheduler's, else the system's."""
    return os.environ.get("SLURMD_NODENAME") or platform.node()


def load() -> float | None:
    """Load average over the last minute, or None."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def busy_cores() -> float | None:
    """How many of this process's cores other processes are using now; None if unknown.

    This process sleeps meanwhile, and so must its children.
    """
    before = read(PROC, "stat")
    time.sleep(LOOK_S)
    taken = taken_cores(before, read(PROC, "stat"))
    if not taken:
        return None
    allowed = os.sched_getaffinity(0)
    spare = len(allowed) - cores()  # what a quota leaves to others
    return max(0.0, sum(share for core, share in taken.items() if core in allowed) - spare)


def taken_cores(before: str, after: str) -> dict[int, float]:
    """For each core, the share of time it was not idle between two texts of /proc/stat.

    Time that a hypervisor gave to other guests counts as taken.
    """
    shares = {}
    then, now = _core_times(before), _core_times(after)
    for core in then.keys() & now.keys():
        busy, total = (late - early for late, early in zip(now[core], then[core], strict=True))
        shares[core] = min(1.0, max(0.0, busy / total)) if total > 0 else 0.0
    return shares


def environment(device: str, threads: int, dtype: str) -> Environment:
    """This machine with measured peak rates. Runs operations, so only workers may call it."""
    import torch

    chosen = find(device)
    chosen.select()
    facts = chosen.facts()  # before the peaks, which take memory
    before, others = load(), busy_cores()
    clock = chosen.host_clock(threads)
    matmul, copy = peaks(chosen, getattr(torch, dtype), seconds_of(clock))
    chosen.release()
    return Environment(
        attnbench=__version__,
        python=platform.python_version(),
        torch=torch.__version__,
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        host=host(),
        processor=processor(),
        cores=cores(),
        threads=threads,
        memory_bytes=memory_bytes(),
        matmul_flops=matmul,
        copy_bytes=copy,
        load=before,
        busy_cores=others,
        **facts,
    )


def seconds_of(clock: Clock) -> Callable[[], float]:
    """What gives the seconds of a clock of the host."""
    return time.process_time if clock is Clock.CPU else time.perf_counter


def peaks(
    device: Device, dtype: "torch.dtype", clock: Callable[[], float] = time.perf_counter
) -> tuple[float | None, float | None]:
    """FLOP/s of a large matrix product in this type, and bytes/s of a large copy.

    None where the device has too little memory.
    """
    import torch

    def product() -> float:
        size = device.matmul_size
        a, b = torch.randn(2, size, size, device=device.torch_name).to(dtype)
        return 2 * size**3 / best(lambda: torch.mm(a, b), device, clock)

    def copy() -> float:
        source = torch.randn(device.copy_elements, device=device.torch_name)
        target = torch.empty_like(source)
        moved = 2 * source.numel() * source.itemsize
        return moved / best(lambda: target.copy_(source), device, clock)

    rates: list[float | None] = []
    for rate in (product, copy):
        try:
            rates.append(rate())
        except torch.OutOfMemoryError:
            rates.append(None)
    return rates[0], rates[1]


def best(
    work: Callable[[], object], device: Device, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Seconds of the fastest call within `PEAK_S`."""
    work()
    device.synchronise()
    fastest, end = float("inf"), time.perf_counter() + PEAK_S
    while time.perf_counter() < end:
        begun = clock()
        work()
        device.synchronise()
        fastest = min(fastest, clock() - begun)
    return fastest


def _core_times(text: str) -> dict[int, tuple[int, int]]:
    """Busy and total time of each core since the system started, in ticks."""
    times = {}
    for number, fields in re.findall(r"^cpu(\d+) (.+)", text, re.MULTILINE):
        user, nice, system, idle, wait, *interrupts = map(int, fields.split()[:8])
        busy = user + nice + system + sum(interrupts)
        times[int(number)] = (busy, busy + idle + wait)
    return times


def proc_bytes(file: str, field: str) -> int:
    """A size from a file in /proc, in bytes; 0 if it is not there."""
    return 1024 * int(_proc(file, field).removesuffix("kB") or 0)


def _proc(file: str, field: str) -> str:
    """The value of the first line `field: value` of a file in /proc; empty if there is none."""
    for line in read(PROC, file).splitlines():
        name, _, value = line.partition(":")
        if name.strip() == field:
            return value.strip()
    return ""
