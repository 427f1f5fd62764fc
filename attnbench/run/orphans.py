"""Find and end the processes that a mechanism started, in whatever session or group they are.

A process whose parent has died is handed to its nearest ancestor that is a subreaper. So whatever
a mechanism starts, forked twice or in a session of its own, stays below its worker, and below the
worker's guard once the worker is gone. Linux only; elsewhere nothing is found.
"""

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
PATIENCE_S = 5.0  # a killed process is gone in milliseconds, unless a disk holds it
PAUSE_S = 0.002


def adopt_orphans() -> None:
    """Make this process a subreaper; the processes it forks are not."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def end_descendants(root: int | None = None) -> int:
    """Kill every process below `root`, by default this one, and return how many were running.

    `root` must be a subreaper, or those that were orphaned are not below it.
    """
    root = os.getpid() if root is None else root
    ended: set[int] = set()
    end = time.monotonic() + PATIENCE_S
    while (found := descendants(root)) and time.monotonic() < end:
        ended |= found
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(PAUSE_S)
        for pid in ended:
            with suppress(ChildProcessError):  # reaped before, or another process's child
                os.waitpid(pid, os.WNOHANG)
    return len(ended)


def descendants(root: int) -> set[int]:
    """The running processes below `root`."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # the name in brackets before these fields may hold anything
            state, parent = stat.read_text(errors="replace").rpartition(")")[2].split()[:2]
            if state not in "ZX":
                children.setdefault(int(parent), []).append(int(stat.parent.name))
    found: set[int] = set()
    waiting = [root]
    while waiting:
        below = set(children.get(waiting.pop(), ())) - found
        found |= below
        waiting += below
    return found
