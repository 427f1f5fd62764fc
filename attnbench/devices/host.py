"""The machine around a device: memory, processor, load, and cores that others take.

`memory_bytes` respects a container's limits.
"""

import math
import os
import platform
import re
import time
from pathlib import Path

from attnbench.devices.cgroups import free_bytes, read

PROC = Path("/proc")
LOOK_S = 0.25  # the kernel counts in hundredths of a second
BELIEVED_S = 0.1  # by which two readings of CPU time may differ


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


def process_s(pid: int, proc: Path = PROC, *, user: bool = False) -> float:
    """Seconds of CPU time of a process so far, as the kernel counts them; NaN if it hides them.

    With `user`, only those in user mode, without system calls and page faults. What the kernel says
    of this process tells whether `/proc` can be trusted: in a container it may be that of another
    namespace, with other process ids, or an emulation that counts nothing.
    """
    own, own_s = _counted(proc / "self")
    believed = own == str(os.getpid()) and abs(own_s - time.process_time()) < BELIEVED_S
    return _counted(proc / str(pid), user)[1] if believed else math.nan


def _counted(folder: Path, user: bool = False) -> tuple[str, float]:
    """The id of a process and its CPU time, from its folder in /proc."""
    number, _, rest = read(folder, "stat").partition(" ")
    fields = rest.rpartition(")")[2].split()
    if len(fields) < 13:
        return number, math.nan
    ticks = int(fields[11]) + (0 if user else int(fields[12]))
    return number, ticks / os.sysconf("SC_CLK_TCK")


def quietest_core() -> int:
    """The core available to this process that other processes use least during `LOOK_S`.

    On a tie the last: the first serves most interrupts. Needs `os.sched_getaffinity`.
    """
    before = read(PROC, "stat")
    time.sleep(LOOK_S)
    taken = taken_cores(before, read(PROC, "stat"))
    return min(os.sched_getaffinity(0), key=lambda core: (round(taken.get(core, 0.0), 1), -core))


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
