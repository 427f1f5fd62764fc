"""Start one fresh process per run, wait for it without spinning, and tell how it ended.

A fork server that has imported the worker and run nothing starts a process in some hundredths of
a second; where there is no fork, each process imports the worker itself. The worker is a module
with `main(request: str) -> str`; its name arrives as data.
"""

import ctypes
import importlib
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from attnbench.errors import CannotRun
from attnbench.run import server
from attnbench.run.groups import oom_kills

PR_SET_PDEATHSIG = 1
LOG_BYTES = 4_000
STARTS, PAUSE_S = 3, 0.1
GRACE_S = 5.0  # from an answer to the end of its process


@dataclass(frozen=True)
class Reply:
    """How a process ended: its answer, or its exit code and last words."""

    answer: Mapping[str, Any] | None
    exit_code: int | None
    timed_out: bool
    elapsed_s: float
    log: str
    memory_killed: bool = False  # the kernel killed it for memory, as its control group counts


class Launcher:
    """Calls `worker.main` in processes of their own, one at a time."""

    def __init__(self, worker: str, preload: tuple[str, ...] = ()) -> None:
        self.worker = worker
        self.forks = "forkserver" in multiprocessing.get_all_start_methods()
        self.context: Any = multiprocessing.get_context("forkserver" if self.forks else "spawn")
        if self.forks:
            self.context.set_forkserver_preload([worker, *preload])
        self.server_log = server.new_log()
        self.running: Any = None

    def __call__(self, request: Mapping[str, Any], timeout_s: float | None) -> Reply:
        """The reply to a request; a process over its time is killed. Raises `CannotRun`."""
        begun, kills = time.monotonic(), oom_kills()
        with tempfile.NamedTemporaryFile(prefix="attnbench-", suffix=".log") as log:
            ours, theirs = self.context.Pipe(duplex=False)
            arguments = (self.worker, json.dumps(request), theirs, log.name)
            self.start(arguments)
            theirs.close()
            try:
                text, timed_out = receive(ours, self.running.sentinel, timeout_s)
                self.running.join(0 if timed_out else GRACE_S)
            finally:
                code = self.stop()
                ours.close()
            answer = None if text is None else json.loads(text)
            elapsed = time.monotonic() - begun
            return Reply(answer, code, timed_out, elapsed, tail(log.name), oom_kills() > kills)

    def start(self, arguments: tuple[Any, ...]) -> None:
        """Start a process; a server that has died is started anew. Raises `CannotRun`."""
        for _ in range(STARTS):
            process = self.context.Process(target=serve, args=arguments, daemon=True)
            try:
                if self.forks:
                    server.start(self.server_log)
                process.start()
            except (EOFError, ConnectionError):
                time.sleep(PAUSE_S)  # until the system knows that the server is dead
                continue
            self.running = process
            return
        words = server.last_line(self.server_log) or "it said nothing"
        raise CannotRun(f"no worker process could be started, again and again: {words}")

    def close(self) -> None:
        """End every process: the running one and what forked it."""
        self.stop()
        if self.forks:
            server.stop()

    def stop(self) -> int | None:
        """End the running process, if one still runs, and give its exit code."""
        process, self.running = self.running, None
        if process is None:
            return None
        if process.is_alive():
            process.kill()
        process.join()
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)  # what a mechanism may have forked
        code: int | None = process.exitcode
        return code


def receive(pipe: Connection, sentinel: int, timeout_s: float | None) -> tuple[str | None, bool]:
    """The answer, or None if the process ended without one; and whether time ran out."""
    ready = wait([pipe, sentinel], timeout_s)
    if not ready:
        return None, True
    try:
        return pipe.recv_bytes().decode(), False
    except (EOFError, OSError):
        return None, False


def serve(worker: str, request: str, pipe: Connection, log: str) -> None:
    """In the new process: answer the request through the pipe and leave at once."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its process itself
    with suppress(OSError, AttributeError):
        os.setpgid(0, 0)
    if hasattr(signal, "pthread_sigmask"):
        server.unblock()  # the mask of the server was for the terminal, which is now out of reach
    end_with_parent()
    prefer_as_victim()
    quiet(log)
    pipe.send_bytes(importlib.import_module(worker).main(request).encode())
    pipe.close()
    sys.stdout.flush()
    os._exit(0)  # no thread or hook of a mechanism may hold the process


def end_with_parent() -> None:
    """End this process when its parent dies, or the server that forked it (Linux).

    The server alone does not do: it lives as long as any of its children holds its pipe.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=end_after, args=(parent.sentinel,), daemon=True).start()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def end_after(sentinel: int) -> None:
    """Block until the parent is gone, then leave."""
    wait([sentinel])
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def prefer_as_victim() -> None:
    """Have the kernel kill this process, not its parent, when memory runs out."""
    try:
        Path("/proc/self/oom_score_adj").write_text("1000")
    except OSError:
        return


def quiet(log: str) -> None:
    """Send what a mechanism prints to the log."""
    target = os.open(log, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(target, stream)
    os.close(target)


def tail(log: str) -> str:
    """The end of the log."""
    try:
        return Path(log).read_bytes()[-LOG_BYTES:].decode(errors="replace").strip()
    except OSError:
        return ""
