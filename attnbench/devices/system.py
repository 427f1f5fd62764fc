"""What measuring needs of the operating system: of Linux, or of another POSIX system.

`SYSTEM` is chosen once, by what is there. What another system does not offer is left out, or done
with `psutil`, and `lost` says so. This file imports nothing of the package: the program that forks
(`measuring/server.py`) loads it by its path, before it is told whose code is measured.
"""

import ctypes
import math
import os
import platform
import re
import signal
import subprocess
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

PROC = Path("/proc")
PR_SET_PDEATHSIG = 1  # the signal that this process gets when its parent dies
PR_SET_CHILD_SUBREAPER = 36  # orphans among the descendants become children of this process
PR_SET_THP_DISABLE = 41
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
M_MMAP_MAX = -4
M_ARENA_MAX = -8
LARGE = 1 << 16  # bytes of blocks that are returned to the system one by one
CPU_CLOCK = 2  # of Linux, for the time in which any thread of a process was on a core
FAULTS = 7  # the place of minor faults in /proc/PID/stat, after the name
AT_REST = frozenset("TtZX")  # states of a thread that is stopped, or has ended
LOOK_S = 0.001  # from look to look at what a process has in memory
WATCH_S = 0.5  # from look to look at whether a parent lives
NAME_S = 5.0  # that the name of a processor may take

# what measuring loses without Linux, and what follows
LOST = (
    "processes are bound to no core, and the speed of cores is not probed, so times vary more",
    "memory is measured alone, so a sweep takes longer",
    "what torch allocates is counted exactly, but by how much a process grows is polled, and memory"
    " outside of torch may go unnoticed",
    "freed memory may go back to the system, and laps in which pages fault are taken again",
    "memory has no limit, so a case that needs more than there is may be killed, or slow all",
    "sleeping is not told from waiting for a core, so time in which a module does not compute is"
    " not counted",
    "single laps are not checked against the CPU time that the kernel counts",
    "a process that a module detaches may be left running",
)


class ResidentPeak(Protocol):
    """The most bytes that this process has in memory, from now on; `is_known` if that is known."""

    is_known: bool

    def grown_bytes(self) -> float:
        """By how much that is above what the process had at first, in bytes."""


class System(Protocol):
    """What differs between Linux and other POSIX systems.

    lost:        what measuring loses here, each with what follows
    binds:       whether processes can be bound to cores
    frees_pages: whether the C library's allocator returns freed pages when it is asked to
    keeps_sent:  whether a file that is sent to another process may be closed before it has come
    """

    lost: tuple[str, ...]
    binds: bool
    frees_pages: bool
    keeps_sent: bool

    def cores(self) -> frozenset[int]:
        """The cores that this process may use."""

    def bind(self, pid: int, cores: Collection[int]) -> None:
        """Let a process (0: this one) run on these cores alone. Raises `OSError`."""

    def processor(self) -> str:
        """The processor's name; empty where nothing says it."""

    def cpu_s(self, pid: int) -> float:
        """Seconds that a process has computed, to the nanosecond; NaN where nothing says it."""

    def faults(self, pid: int) -> int:
        """Pages that a process has mapped without reading a file; 0 where nothing says it."""

    def waited_s(self) -> float:
        """Seconds that this process's threads have waited for a core; NaN where unknown."""

    def private_bytes(self) -> int:
        """Resident bytes that belong to no file; 0 where nothing says it."""

    def resident_peak(self) -> ResidentPeak:
        """What tells by how much this process grows from now on."""

    def keep_pages(self) -> None:
        """Make the allocator keep freed pages, where it can."""

    def return_pages(self) -> None:
        """Make the allocator return freed pages, where it can."""

    def limit_memory(self, further_bytes: int) -> None:
        """Let allocations beyond so many bytes more than now fail, where that can be asked for."""

    def end_with(self, parent: int, group: int = 0) -> None:
        """End this process, and a process group if given, when its parent dies, or has died."""

    def outlive_parent(self) -> None:
        """Take back `end_with`."""

    def adopt_orphans(self) -> None:
        """Become the parent of orphans among the descendants, where that can be asked for."""

    def be_killed_first(self) -> None:
        """Where memory runs out, let the kernel kill this process before others, if it can."""

    def mapped_files(self) -> set[str]:
        """Paths of the files that are mapped into this process; none where nothing says it."""

    def end_family(self, group: int = 0) -> int:
        """Kill every descendant, and a process group if given; returns how many were killed."""

    def shows_families(self) -> bool:
        """Whether `descendants` and `is_at_rest` can be trusted."""

    def descendants(self, pid: int) -> Iterator[int]:
        """The children of a process, and theirs."""

    def is_at_rest(self, pid: int) -> bool:
        """Whether each thread of a process is stopped or has ended."""


class Linux:
    """Linux; what a container hides of `/proc` is left out."""

    lost: tuple[str, ...] = ()
    binds = True
    frees_pages = True
    keeps_sent = True

    def cores(self) -> frozenset[int]:
        return frozenset(os.sched_getaffinity(0))

    def bind(self, pid: int, cores: Collection[int]) -> None:
        os.sched_setaffinity(pid, cores)

    def processor(self) -> str:
        named = re.search(r"^model name\s*: (.+)", text(PROC / "cpuinfo"), re.MULTILINE)
        return named[1] if named else ""

    def cpu_s(self, pid: int) -> float:
        # the number of the clock is made as `clock_getcpuclockid` makes it
        with suppress(OSError):
            return time.clock_gettime((~pid << 3) | CPU_CLOCK)
        return math.nan

    def faults(self, pid: int) -> int:
        fields = text(PROC / str(pid) / "stat").rpartition(")")[2].split()
        return int(fields[FAULTS]) if len(fields) > FAULTS else 0

    def waited_s(self, proc: Path = PROC) -> float:
        # time on a core, time waiting for one, turns
        texts = (text(task / "schedstat") for task in (proc / "self" / "task").glob("*"))
        waits = [int(line.split()[1]) for line in texts if line]
        return sum(waits) / 1e9 if waits else math.nan

    def private_bytes(self) -> int:
        return status_bytes("RssAnon")

    def resident_peak(self) -> ResidentPeak:
        return Watermark()

    def keep_pages(self) -> None:
        prctl(PR_SET_THP_DISABLE, 1)  # page faults map 4 KiB each, as they are counted
        mallopt(M_ARENA_MAX, 1)
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, -1)

    def return_pages(self) -> None:
        prctl(PR_SET_THP_DISABLE, 1)
        mallopt(M_MMAP_THRESHOLD, LARGE)
        mallopt(M_TRIM_THRESHOLD, LARGE)
        if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
            trim(0)

    def limit_memory(self, further_bytes: int) -> None:
        if not (in_use := status_bytes("VmSize")):  # /proc is hidden
            return
        import resource  # not on Windows, where reports are read

        limits = resource.getrlimit(resource.RLIMIT_AS)
        present = [limit for limit in limits if limit != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_AS, (min([in_use + further_bytes, *present]), limits[1]))

    def end_with(self, parent: int, group: int = 0) -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        end_unless(parent, group)

    def outlive_parent(self) -> None:
        prctl(PR_SET_PDEATHSIG, 0)

    def adopt_orphans(self) -> None:
        prctl(PR_SET_CHILD_SUBREAPER, 1)

    def be_killed_first(self) -> None:
        with suppress(OSError):
            (PROC / "self" / "oom_score_adj").write_text("1000")

    def mapped_files(self) -> set[str]:
        lines = text(PROC / "self" / "maps").splitlines()
        return {line.split(maxsplit=5)[5] for line in lines if line.count("/")}

    def end_family(self, group: int = 0) -> int:
        kill_group(group)
        ended: set[int] = set()
        # orphans of killed processes become children of this one, which adopts them
        while left := set(children(PROC / "self")) - ended:
            for pid in left:
                send(pid, signal.SIGKILL)
            for pid in left:
                reap(pid)
            ended |= left
        return len(ended)

    def shows_families(self) -> bool:
        # by their ids here: /proc may be of another namespace
        me = PROC / str(os.getpid())
        with suppress(OSError):
            shown = os.readlink(PROC / "self") == me.name
            return shown and (me / "task" / str(threading.get_native_id()) / "children").is_file()
        return False

    def descendants(self, pid: int) -> Iterator[int]:
        for child in children(PROC / str(pid)):
            yield child
            yield from self.descendants(child)

    def is_at_rest(self, pid: int) -> bool:
        return all(state(task) in AT_REST for task in tasks(PROC / str(pid)))


class Posix:
    """A POSIX system of which nothing more is known, such as macOS."""

    lost: tuple[str, ...] = LOST
    binds = False
    frees_pages = False
    keeps_sent = False

    def __init__(self) -> None:
        self.outlives = threading.Event()
        self.watch = threading.Thread()  # which never starts

    def cores(self) -> frozenset[int]:
        return frozenset(range(os.cpu_count() or 1))

    def bind(self, pid: int, cores: Collection[int]) -> None:
        pass

    def processor(self) -> str:
        # where macOS has the name
        command = ("sysctl", "-n", "machdep.cpu.brand_string")
        with suppress(OSError, subprocess.SubprocessError):
            return subprocess.run(
                command, capture_output=True, text=True, timeout=NAME_S, check=True
            ).stdout.strip()
        return ""

    def cpu_s(self, pid: int) -> float:
        return math.nan

    def faults(self, pid: int) -> int:
        import psutil

        with suppress(psutil.Error, OSError):
            return int(getattr(psutil.Process(pid).memory_info(), "pfaults", 0))
        return 0

    def waited_s(self) -> float:
        return math.nan

    def private_bytes(self) -> int:
        return 0

    def resident_peak(self) -> ResidentPeak:
        return Polled()

    def keep_pages(self) -> None:
        pass

    def return_pages(self) -> None:
        pass

    def limit_memory(self, further_bytes: int) -> None:
        pass

    def end_with(self, parent: int, group: int = 0) -> None:
        """Nothing tells of a parent's death, so a thread looks whether it lives."""
        outlives = threading.Event()
        self.outlives = outlives

        def look() -> None:
            while not outlives.wait(WATCH_S):
                end_unless(parent, group)

        end_unless(parent, group)

        self.watch = threading.Thread(target=look, daemon=True)
        self.watch.start()

    def outlive_parent(self) -> None:
        self.outlives.set()
        if self.watch.is_alive():
            self.watch.join()  # a process that forks shall have one thread

    def adopt_orphans(self) -> None:
        pass

    def be_killed_first(self) -> None:
        pass

    def mapped_files(self) -> set[str]:
        return set()

    def end_family(self, group: int = 0) -> int:
        """Orphans are adopted by the system's first process, so all are stopped before any ends."""
        family: set[int] = set()
        while more := {*self.descendants(os.getpid()), *members(group)} - family:
            for pid in more:
                send(pid, signal.SIGSTOP)
            family |= more
        for pid in family:
            send(pid, signal.SIGKILL)
        for pid in family:
            reap(pid)
        return len(family)

    def shows_families(self) -> bool:
        return False  # each look asks the system for all of its processes: too slow beside laps

    def descendants(self, pid: int) -> Iterator[int]:
        import psutil

        with suppress(psutil.Error, OSError):
            yield from (child.pid for child in psutil.Process(pid).children(recursive=True))

    def is_at_rest(self, pid: int) -> bool:
        import psutil

        with suppress(psutil.Error, OSError):
            ended = (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
            return psutil.Process(pid).status() in ended
        return True


class Watermark:
    """The peak of resident memory that Linux keeps, which is exact."""

    def __init__(self) -> None:
        try:
            (PROC / "self" / "clear_refs").write_text("5")
            self.before = status_bytes("VmRSS")
        except OSError:
            self.before = 0
        self.is_known = self.before > 0

    def grown_bytes(self) -> float:
        return status_bytes("VmHWM") - self.before


class Polled:
    """Resident memory as a thread of this process sees it, and the peak of its whole life.

    Where that peak rises, it is that of these moments, and exact.
    """

    def __init__(self) -> None:
        import psutil

        self.process = psutil.Process()
        self.errors = (psutil.Error, OSError)
        self.ended = threading.Event()
        self.most = self.before = self.resident_bytes()
        self.earlier = highest_bytes()
        self.is_known = self.before > 0
        self.thread = threading.Thread(target=self.look, daemon=True)
        self.thread.start()

    def resident_bytes(self) -> int:
        with suppress(*self.errors):
            return int(self.process.memory_info().rss)
        return 0

    def look(self) -> None:
        """Look again and again, until the peak is asked for."""
        while not self.ended.wait(LOOK_S):
            self.most = max(self.most, self.resident_bytes())

    def grown_bytes(self) -> float:
        self.ended.set()
        self.thread.join()
        if (highest := highest_bytes()) > self.earlier:
            self.most = max(self.most, highest)
        return self.most - self.before


def chosen() -> System:
    """The system that this is, by what it offers."""
    has_cores = hasattr(os, "sched_setaffinity") and hasattr(os, "sched_getaffinity")
    return Linux() if has_cores and has_prctl() else Posix()


def has_prctl() -> bool:
    """Whether the C library has the call by which a process asks the kernel of Linux."""
    with suppress(OSError, TypeError):  # of which the second is Windows'
        return getattr(ctypes.CDLL(None), "prctl", None) is not None
    return False


def prctl(option: int, value: int) -> None:
    """Set an option of this process."""
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def mallopt(parameter: int, value: int) -> None:
    """Set a parameter of glibc's allocator; does nothing with other allocators."""
    if (call := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        call(parameter, value)


def text(file: Path) -> str:
    """The text of a file; empty if it cannot be read."""
    with suppress(OSError):
        return file.read_text(errors="replace")
    return ""


def status_bytes(field: str) -> int:
    """A size of this process that /proc tells, in bytes; 0 if it does not."""
    found = re.search(rf"^{field}:\s*(\d+) kB", text(PROC / "self" / "status"), re.MULTILINE)
    return 1024 * int(found[1]) if found else 0


def highest_bytes() -> int:
    """The most bytes that this process ever had in memory."""
    import resource

    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return highest if platform.system() == "Darwin" else 1024 * highest


def tasks(process: Path) -> list[Path]:
    """The folders of a process's threads in /proc; none if it has ended."""
    with suppress(OSError):
        return list((process / "task").iterdir())
    return []


def state(task: Path) -> str:
    """The letter of the state of a thread, as proc_pid_stat(5) names them; X if it has ended."""
    fields = text(task / "stat").rpartition(")")[2].split()
    return fields[0] if fields else "X"


def children(process: Path) -> Iterator[int]:
    """The process ids of the children of a process with this folder in /proc."""
    for task in tasks(process):
        yield from map(int, text(task / "children").split())


def members(group: int) -> Iterator[int]:
    """The process ids of a process group; none of group 0."""
    import psutil

    for pid in psutil.pids() if group else ():
        with suppress(OSError):
            if os.getpgid(pid) == group:
                yield pid


def kill_group(group: int) -> None:
    """Kill a process group; none if it is 0."""
    if group:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


def end_unless(parent: int, group: int = 0) -> None:
    """End this process, and a process group if given, unless this is its parent."""
    if os.getppid() != parent:
        kill_group(group)
        os._exit(1)


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may have ended, or may be another user's."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def reap(pid: int) -> None:
    """Wait for the end of a child; does nothing for another process."""
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


SYSTEM = chosen()
