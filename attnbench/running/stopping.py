"""Stop a process together with all that it has started, so that it takes no time from others."""

import os
import signal
import time
from contextlib import suppress

from attnbench.devices import SYSTEM

LIMIT_S = 2.0  # until all have stopped: one that waits for a disk does so later
LOOK_S = 0.0005  # from look to look


def is_possible() -> bool:
    """Whether the system shows the threads and children of processes, by their ids here."""
    return SYSTEM.shows_families()


def stop(pid: int) -> bool:
    """Stop a process with its descendants; False where not all have stopped within `LIMIT_S`.

    A descendant that began before its parent stopped is found by a second look.
    """
    end_s = time.monotonic() + LIMIT_S
    before = set[int]()
    while time.monotonic() < end_s:
        family = {pid, *SYSTEM.descendants(pid)}
        moving = {each for each in family if not SYSTEM.is_at_rest(each)}
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
    for each in (*SYSTEM.descendants(pid), pid):
        send(each, signal.SIGCONT)


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may have ended, or may be another user's."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
