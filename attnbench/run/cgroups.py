"""Limits of a container or service: Linux control groups (cgroups), version 1 or 2."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

TOP = Path("/sys/fs/cgroup")
MINE = Path("/proc/self/cgroup")


class Group(NamedTuple):
    """A folder of limits and usage; `unified` is version 2, where files have other names."""

    folder: Path
    unified: bool

    def read(self, unified: str, separate: str) -> str:
        """The file named so in version 2, or in version 1; empty if there is none."""
        try:
            return (self.folder / (unified if self.unified else separate)).read_text().strip()
        except OSError:
            return ""

    def entry(self, unified: str, separate: str, name: str) -> int | None:
        """The number of the line `name number` in such a file, or None."""
        for line in self.read(unified, separate).splitlines():
            if line.startswith(f"{name} "):
                return int(line.split()[1])
        return None


def groups(controller: str) -> Iterator[Group]:
    """This process's group of a controller, then those above it, whose limits also apply.

    A container sees its group at the top, where the host's path does not exist.
    """
    lines = ["0::/", f"0:{controller}:/"]
    with suppress(OSError):
        lines = [*MINE.read_text().splitlines(), *lines]
    seen = set()
    for line in lines:
        _, kinds, path = line.split(":", 2)
        if kinds and controller not in kinds.split(","):
            continue
        top = TOP / kinds
        own = top / path.lstrip("/")
        for folder in (own, *own.parents):
            if folder.is_relative_to(top) and folder not in seen:
                seen.add(folder)
                yield Group(folder, unified=not kinds)


def free_bytes() -> int | None:
    """Memory left within the groups' limits, including droppable caches; None if unlimited."""
    left = None
    for group in groups("memory"):
        limit = group.read("memory.max", "memory.limit_in_bytes")
        used = group.read("memory.current", "memory.usage_in_bytes")
        if limit.isdigit():
            # file pages that the kernel drops before it runs out of memory
            cached = "inactive_file" if group.unified else "total_inactive_file"
            droppable = group.entry("memory.stat", "memory.stat", cached) or 0
            free = max(0, int(limit) - (int(used) - droppable if used.isdigit() else 0))
            left = free if left is None else min(left, free)
    return left


def cores() -> int:
    """Cores that this process may use: its affinity, within a container's limit."""
    try:
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:
        allowed = os.cpu_count() or 1
    return min(allowed, whole_cores() or allowed)


def whole_cores() -> int | None:
    """Cores' worth of CPU time that the groups allow, rounded down; None if unlimited."""
    least = None
    for group in groups("cpu"):
        quota, _, period = group.read("cpu.max", "cpu.cfs_quota_us").partition(" ")
        period = period or group.read("cpu.max", "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit():
            cores = max(1, int(quota) // int(period))
            least = cores if least is None else min(least, cores)
    return least


def oom_kills() -> int:
    """How many processes of this process's group the kernel has killed for memory."""
    kills = (g.entry("memory.events", "memory.oom_control", "oom_kill") for g in groups("memory"))
    return next((count for count in kills if count is not None), 0)
