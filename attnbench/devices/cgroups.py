"""Limits of a container or service: Linux control groups (cgroups), version 1 or 2."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from attnbench.devices.system import SYSTEM

TOP = Path("/sys/fs/cgroup")
MINE = Path("/proc/self/cgroup")


def read(folder: Path, *names: str) -> str:
    """The text of the first of these files that can be read; empty if none can."""
    for name in names:
        with suppress(OSError):
            return (folder / name).read_text().strip()
    return ""


def entry(text: str, name: str) -> int | None:
    """The number of the line `name number`, or None."""
    lines = (line.partition(" ") for line in text.splitlines())
    return next((int(number) for key, _, number in lines if key == name), None)


def groups(controller: str) -> Iterator[Path]:
    """This process's group of a controller, then those above it, whose limits also apply.

    Each is a folder. A container sees its group at the top, where the host's path does not exist.
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
                yield folder


def free_bytes() -> int | None:
    """Memory left within the groups' limits, including droppable caches; None if unlimited."""
    left = []
    for group in groups("memory"):
        limit = read(group, "memory.max", "memory.limit_in_bytes")
        used = read(group, "memory.current", "memory.usage_in_bytes")
        if limit.isdigit():
            # file pages that the kernel drops before it runs out of memory; version 1 has both
            # names, and the shorter one leaves out the groups below
            stat = read(group, "memory.stat")
            droppable = entry(stat, "total_inactive_file") or entry(stat, "inactive_file") or 0
            left.append(max(0, int(limit) - (int(used) - droppable if used.isdigit() else 0)))
    return min(left, default=None)


def cores() -> int:
    """Cores that this process may use: its affinity, within a container's limit."""
    allowed = len(SYSTEM.cores())
    return min(allowed, whole_cores() or allowed)


def whole_cores() -> int | None:
    """Cores' worth of CPU time that the groups allow, rounded down but 1; None if unlimited."""
    allowed = quota_cores()
    return None if allowed is None else max(1, int(allowed))


def quota_cores() -> float | None:
    """Cores' worth of CPU time that the groups allow, such as 0.5; None if unlimited."""
    return min((cores for _, cores in quotas()), default=None)


def quotas() -> Iterator[tuple[Path, float]]:
    """The groups that limit CPU time, with the cores' worth that each allows."""
    for group in groups("cpu"):
        quota, _, period = read(group, "cpu.max", "cpu.cfs_quota_us").partition(" ")
        period = period or read(group, "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period):
            yield group, int(quota) / int(period)


@dataclass(frozen=True)
class Stops:
    """How often the kernel has stopped a group that had used up its CPU time.

    It looks at the end of each of `periods`, usually 0.1 s long, in which the group computed.
    """

    periods: int = 0
    stopped: int = 0

    def __sub__(self, earlier: "Stops") -> "Stops":
        """What came after an earlier count."""
        return Stops(self.periods - earlier.periods, self.stopped - earlier.stopped)

    @property
    def share(self) -> float:
        """The share of the periods in which it was stopped; 0 without any."""
        return self.stopped / self.periods if self.periods else 0.0


def stops() -> Stops:
    """How often this process's groups were stopped so far: the one of them that was most often."""
    texts = (read(group, "cpu.stat") for group, _ in quotas())
    counts = (Stops(entry(t, "nr_periods") or 0, entry(t, "nr_throttled") or 0) for t in texts)
    return max(counts, key=lambda count: count.stopped, default=Stops())


def oom_kills() -> int:
    """How many processes of this process's group the kernel has killed for memory."""
    texts = (read(group, "memory.events", "memory.oom_control") for group in groups("memory"))
    return next((n for text in texts if (n := entry(text, "oom_kill")) is not None), 0)
