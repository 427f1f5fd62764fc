"""The machine around a device: memory, processor, load, and cores that others take.

`memory_bytes` respects a container's limits.
"""

import math
import os
import platform
import time
from contextlib import suppress

import psutil

from attnbench.devices.cgroups import free_bytes
from attnbench.devices.system import SYSTEM

LOOK_S = 0.25  # the kernel counts in hundredths of a second
BELIEVED_S = 0.1  # by which two readings of CPU time may differ


def memory_bytes() -> int:
    """Memory that this process may still use, within a container's limit."""
    try:
        available = psutil.virtual_memory().available
    except OSError:  # where /proc is hidden
        available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    left = free_bytes()
    return available if left is None else min(available, left)


def processor() -> str:
    """The processor's name."""
    return SYSTEM.processor() or platform.processor() or platform.machine()


def host() -> str:
    """The name of this node: the scheduler's, else the system's."""
    return os.environ.get("SLURMD_NODENAME") or platform.node()


def load() -> float | None:
    """Load average over the last minute, or None."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def user_s(pid: int) -> float:
    """Seconds in which a process has computed so far, as the kernel counts them; NaN if it hides
    them.

    System calls and page faults are left out. What the kernel says of this process tells whether
    `/proc` can be trusted: in a container it may show another namespace, with other process
    ids, or an emulation that counts nothing.
    """
    with suppress(psutil.Error, OSError):
        own = psutil.Process().cpu_times()
        if abs(own.user + own.system - time.process_time()) < BELIEVED_S:
            return psutil.Process(pid).cpu_times().user
    return math.nan


def cpu_s(pid: int) -> float:
    """Seconds in which a process has computed so far, system calls included, by its clock in the
    kernel; NaN if the system has none.
    """
    return SYSTEM.cpu_s(pid)


def faults(pid: int) -> int:
    """Pages that a process has mapped so far without reading a file; 0 if the system hides it."""
    return SYSTEM.faults(pid)


def quietest_core() -> int:
    """The core available to this process that is idle most of the next `LOOK_S`.

    On a tie the last: the first serves most interrupts.
    """
    idle = dict[int, float]()
    with suppress(OSError):
        every = psutil.cpu_times_percent(LOOK_S, percpu=True)
        idle |= {core: round(share.idle, -1) for core, share in enumerate(every)}
    return max(SYSTEM.cores(), key=lambda core: (idle.get(core, 0.0), core))
