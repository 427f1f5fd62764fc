"""Control groups of Linux, of either version: what a container or a service may use."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

TOP = Path("/sys/fs/cgroup")
MINE = Path("/proc/self/cgroup")


class Group(NamedTuple):
    """A folder of figures; `unified` is version 2, in which the figures have other names."""

    folder: Path
    unified: bool

    def read(self, unified: str, separate: str) -> str:
        """A figure by its name in version 2 and in version 1; empty where there is none."""
        try:
            return (self.folder / (unified if self.unified else separate)).read_text().strip()
        except OSError:
            return ""


def groups(controller: str) -> Iterator[Group]:
    """This process's own group of a controller, then those above it, whose limits hold as well.

    A container sees its own group at the top, where the path of the host leads nowhere.
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
    """Memory that the groups leave, caches that can be dropped among it; None without a limit."""
    left = None
    for group in groups("memory"):
        limit = group.read("memory.max", "memory.limit_in_bytes")
        used = group.read("memory.current", "memory.usage_in_bytes")
        if limit.isdigit():
            in_use = int(used) - cache_bytes(group) if used.isdigit() else 0
            free = max(0, int(limit) - in_use)
            left = free if left is None else min(left, free)
    return left


def cache_bytes(group: Group) -> int:
    """Pages of files that the kernel would drop before it runs out of memory."""
    name = "inactive_file " if group.unified else "total_inactive_file "
    for line in group.read("memory.stat", "memory.stat").splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    return 0


def whole_cores() -> int | None:
    """Cores' worth of time that the groups allow, rounded down; None without a limit."""
    least = None
    for group in groups("cpu"):
        quota, _, period = group.read("cpu.max", "cpu.cfs_quota_us").partition(" ")
        period = period or group.read("cpu.max", "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit():
            cores = max(1, int(quota) // int(period))
            least = cores if least is None else min(least, cores)
    return least


def oom_kills() -> int:
    """How many processes of the own group the kernel has killed for memory."""
    for group in groups("memory"):
        for line in group.read("memory.events", "memory.oom_control").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
