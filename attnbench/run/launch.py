"""Start one fresh process per run, wait for it without spinning, and tell how it ended.

A fork server that has imported the worker and run nothing starts a process in some hundredths of
a second; where there is no fork, each process imports the worker itself. On Linux each has a guard,
which ends whatever it started. The worker is a module
with `main(request: str) -> str`; its name arrives as data.
"""

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

from attnbench.run.groups import oom_kills
from attnbench.run.guard import guard

LOG_BYTES = 4_000
STARTS, PAUSE_S = 3, 0.1
GRACE_S = 10.0  # from an answer, or from being told to end, to the end of a process


@dataclass(frozen=True)
class Reply:
    """How a process ended: its answer, or its exit code and last words."""

    answer: Mapping[str, Any] | None
    exit_code: int | None
    timed_out: bool
    elapsed_s: float
    log: str
    memory_killed: bool = False  # the kernel killed it for memory, as its control group counts
    ended: int = 0  # processes that it had started, were still running and were ended


class Launcher:
    """Calls `worker.main` in processes of their own, one at a time."""

    def __init__(self, worker: str, preload: tuple[str, ...] = ()) -> None:
        self.worker = worker
        fork = "forkserver" in multiprocessing.get_all_start_methods()
        self.context: Any = multiprocessing.get_context("forkserver" if fork else "spawn")
        if fork:
            self.context.set_forkserver_preload([*preload, worker])
        self.running: Any = None

    def __call__(self, request: Mapping[str, Any], timeout_s: float | None) -> Reply:
        """The reply to a request; a process over its time is killed."""
        begun, kills = time.monotonic(), oom_kills()
        with tempfile.NamedTemporaryFile(prefix="attnbench-", suffix=".log") as log:
            ours, theirs = self.context.Pipe(duplex=False)
            report, reporting = self.context.Pipe(duplex=False)
            arguments = (self.worker, json.dumps(request), theirs, reporting, log.name)
            self.running = self.started(arguments)
            theirs.close()
            reporting.close()
            try:
                text, timed_out = receive(ours, self.running.sentinel, timeout_s)
                self.running.join(0 if timed_out else GRACE_S)
            finally:
                code = self.stop()
                found = reported(report)
                for pipe in (ours, report):
                    pipe.close()
            return Reply(
                answer=None if text is None else json.loads(text),
                exit_code=found.get("exit_code", code),
                timed_out=timed_out,
                elapsed_s=time.monotonic() - begun,
                log=tail(log.name),
                memory_killed=oom_kills() > kills,
                ended=found.get("ended", 0),
            )

    def started(self, arguments: tuple[Any, ...]) -> Any:
        """A new process; a server that has died is started anew. Raises `ConnectionError`."""
        for _ in range(STARTS):
            process = self.context.Process(target=serve, args=arguments, daemon=True)
            try:
                process.start()
            except (EOFError, ConnectionError):
                time.sleep(PAUSE_S)  # until the system knows that the server is dead
                continue
            return process
        raise ConnectionError("what starts worker processes dies again and again")

    def stop(self) -> int | None:
        """End the running process, if one still runs, and give its exit code."""
        process, self.running = self.running, None
        if process is None:
            return None
        if process.is_alive():
            process.terminate()  # a guard ends what is below it and reports
            process.join(GRACE_S)
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


def reported(pipe: Connection) -> Mapping[str, Any]:
    """What the guard said of the worker's end; nothing without a guard that could say it."""
    with suppress(EOFError, OSError):
        if pipe.poll():
            found: Mapping[str, Any] = json.loads(pipe.recv_bytes())
            return found
    return {}


def serve(worker: str, request: str, pipe: Connection, report: Connection, log: str) -> None:
    """In the new process: answer the request through the pipe and leave at once."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its process itself
    with suppress(OSError, AttributeError):
        os.setpgid(0, 0)
    quiet(log)
    if sys.platform == "linux":
        guard(report)
    else:
        end_with_parent()
    prefer_as_victim()
    pipe.send_bytes(importlib.import_module(worker).main(request).encode())
    pipe.close()
    sys.stdout.flush()
    os._exit(0)  # no thread or hook of a mechanism may hold the process


def end_with_parent() -> None:
    """End this process when its parent dies.

    The server that forked it alone does not do: it lives as long as any of its children holds its
    pipe.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=end_after, args=(parent.sentinel,), daemon=True).start()


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
