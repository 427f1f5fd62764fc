"""A process above each worker that runs nothing of a mechanism and leaves nothing of it behind.

    parent ── fork server ── guard ── worker ── whatever the mechanism starts

The guard ends everything below it when the worker ends, however that happens, when it is told to
(SIGTERM), and when the parent or the fork server dies. Linux only.
"""

import ctypes
import json
import multiprocessing
import os
import signal
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from attnbench.run.orphans import adopt_orphans, end_descendants

PR_SET_PDEATHSIG = 1


def guard(report: Connection) -> None:
    """Fork the worker and return in it; in the guard, wait for its end and leave.

    `report` gets one JSON object: `exit_code` of the worker, negative for a signal, and `ended`,
    how many processes it left running.
    """
    adopt_orphans()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    die_with_parent(signal.SIGTERM)
    worker = os.fork()
    if worker == 0:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        for end in (woken, wake):
            os.close(end)
        report.close()
        die_with_parent(signal.SIGKILL)
        adopt_orphans()  # so that the worker itself can end what a case started
        return
    exit_code = wait_for(worker, woken)
    with suppress(OSError):  # the parent is gone
        report.send_bytes(json.dumps({"exit_code": exit_code, "ended": end_descendants()}).encode())
    os._exit(0)


def wait_for(worker: int, woken: int) -> int:
    """Block until the worker has ended and return its exit code; end it if told to."""
    parent = multiprocessing.parent_process()
    sources: list[Any] = [woken] if parent is None else [woken, parent.sentinel]
    while True:
        pid, status = os.waitpid(worker, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        ready = wait(sources)
        if ready != [woken] or signal.SIGTERM in os.read(woken, 64):
            os.kill(worker, signal.SIGKILL)
            return os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])


def die_with_parent(number: signal.Signals) -> None:
    """Have the kernel send this process a signal when the one that forked it dies."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
