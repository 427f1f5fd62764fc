"""Stop a process together with all that it has started, so that it takes no time from others."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
LIMIT_S = 2.0  # until all have stopped: one that waits for a disk does so later
LOOK_S = 0.0005  # from look to look
AT_REST = frozenset("TtZX")  # states of a thread that is stopped, or has ended


def is_possible() -> bool:
    """Whether the system shows the threads and children of processes, by their ids here."""
    me = PROC / str(os.getpid())
    with suppress(OSError):
        shown = os.readlink(PROC / "self") == me.name
        return shown and (me / "task" / str(threading.get_native_id()) / "children").is_file()
    return False


def stop(pid: int) -> bool:
    """Stop a process with its descendants; False where not all have stopped within `LIMIT_S`.

    A descendant that began before its parent stopped is found by a second look.
    """
    end_s = time.monotonic() + LIMIT_S
    before = set[int]()
    while time.monotonic() < end_s:
        family = {pid, *descendants(pid)}
        moving = {each for each in family if not is_at_rest(each)}
        if not moving and family == before:
            return True
        for each in moving:
            send(each, signal.SIGSTOP)
        before = set() if moving else family
        if moving:
            time.sleep(LOOK_S)
    return False


def go_on(pid: int) -> None:
    """Let a process and its descendants go on."""
    for each in (*descendants(pid), pid):
        send(each, signal.SIGCONT)


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may have ended, or may be another user's."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def descendants(pid: int) -> Iterator[int]:
    """The children of a process, and theirs."""
    for task in tasks(pid):
        with suppress(OSError):
            for child in map(int, (task / "children").read_text().split()):
                yield child
                yield from descendants(child)


def is_at_rest(pid: int) -> bool:
    """Whether each thread of a process is stopped or has ended."""
    return all(state(task) in AT_REST for task in tasks(pid))


def state(task: Path) -> str:
    """The letter of the state of a thread, as proc_pid_stat(5) names them; X if it has ended."""
    with suppress(OSError):
        return (task / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    return "X"


def tasks(pid: int) -> list[Path]:
    """The folders of a process's threads in /proc; none if it has ended."""
    with suppress(OSError):
        return list((PROC / str(pid) / "task").iterdir())
    return []
