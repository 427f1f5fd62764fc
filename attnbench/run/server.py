"""The process that forks workers: deaf to the terminal's signals, its words kept from the user."""

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, resource_tracker

STREAMS = (1, 2)


def start(log: int) -> None:
    """Start multiprocessing's fork server unless it runs; what it prints goes to the log.

    A terminal sends Ctrl-C to the whole process group, and the server would die of it with a
    traceback while it imports. It inherits a mask that blocks the signals from its first
    instruction on; the processes that it forks call `unblock`.
    """
    # one after the other: starting the tracker, which the server needs, unblocks some of them
    for ensure_running in (resource_tracker.ensure_running, forkserver.ensure_running):
        with blocked(), redirected(log):
            ensure_running()


def stop() -> None:
    """End the server now, not when it notices: it may be importing for seconds."""
    pid = getattr(forkserver._forkserver, "_forkserver_pid", None)
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def new_log() -> int:
    """A file without a name, so that nothing is left of it."""
    number, path = tempfile.mkstemp(prefix="attnbench-", suffix=".log")
    os.unlink(path)
    return number


def last_line(log: int) -> str:
    """The last line of a log, or nothing."""
    lines = os.pread(log, os.fstat(log).st_size, 0).decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


@contextmanager
def blocked() -> Iterator[None]:
    """Processes that are started in the block inherit a mask; a signal here waits for its end."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, terminal_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def unblock() -> None:
    """Let the signals end this process again."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, terminal_signals())


def terminal_signals() -> set[signal.Signals]:
    """What a terminal, or what stops a service, sends to every process of a group."""
    return {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


@contextmanager
def redirected(log: int) -> Iterator[None]:
    """Processes that are started in the block print to the log."""
    kept = [os.dup(number) for number in STREAMS]
    try:
        for number in STREAMS:
            os.dup2(log, number)
        yield
    finally:
        for number, copy in zip(STREAMS, kept, strict=True):
            os.dup2(copy, number)
            os.close(copy)
