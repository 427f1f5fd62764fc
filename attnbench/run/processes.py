"""Start measuring processes, ask them, wait without spinning, and say how they ended.

The server's script arrives as a path and is run by itself, so that a worker can load the package
of another source tree; `preload` names the modules that workers of this package share.
"""

import json
import math
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from attnbench.errors import CannotRun
from attnbench.run.groups import oom_kills
from attnbench.run.scratch import Scratch

START_TIMEOUT_S = 300.0  # importing torch on a cold disk
GRACE_S = 5.0  # from the end of a connection to the end of its process
STUCK_S = 60.0  # from a kill to the end: the kernel may have much memory to free
LOG_BYTES = 4_000
MEASURING = "attnbench.measure.worker"  # what a worker is unless another module is named
MESSAGE = struct.Struct("<4siii")  # as measure/server.py has it

Answer = Mapping[str, Any]


class Silent(CannotRun):
    """The server has not answered in time."""


class Lost(CannotRun):
    """The server has ended."""


class OverBudget(CannotRun):
    """The time of all was over before a process answered; the text goes on from its name."""


class Server:
    """The process that has imported torch and forks each worker; a context."""

    def __init__(
        self, script: Path, *, preload: tuple[str, ...] = (), threads: int = 1, **about: Any
    ) -> None:
        if not hasattr(os, "fork"):
            raise CannotRun("measuring forks processes; this system has no fork")
        self.script, self.preload, self.threads, self.about = script, preload, threads, about
        self.end_s = math.inf
        self.started = 0
        self.closed = False
        # exit code, if known, and how many processes it left running, by process id
        self.exits: dict[int, tuple[int | None, int]] = {}
        self.living: dict[int, Worker] = {}
        self.lock = threading.RLock()  # two trees may be asked at once
        self.scratch = Scratch()
        self.folder = self.scratch.folder
        try:
            self.start()
        except BaseException:
            self.scratch.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start the process that forks."""
        self.ready = False
        self.control, theirs = socket.socketpair()
        with theirs, open(self.folder / "log", "wb") as log:
            self.process = subprocess.Popen(
                # -P: the script's own folder is not an import path
                [sys.executable, "-P", str(self.script)],
                stdin=theirs.fileno(),
                stdout=log,
                stderr=log,
                env=environment(self.threads),
                start_new_session=True,  # the terminal's signals are for the parent
            )
        self.control.sendall(json.dumps(self.preload).encode())

    @contextmanager
    def until(self, end_s: float) -> Iterator[None]:
        """No wait inside the block lasts longer than to this moment of `time.monotonic`."""
        self.end_s = end_s
        try:
            yield
        finally:
            self.end_s = math.inf

    @property
    def left_s(self) -> float:
        """Seconds until that moment."""
        return max(0.0, self.end_s - time.monotonic())

    def wait(self) -> None:
        """Block until torch is loaded. Raises `CannotRun`, or `OverBudget`."""
        if self.ready:
            return
        left_s = self.left_s
        try:
            self.read(b"open", min(START_TIMEOUT_S, left_s))
        except Silent as error:
            if left_s < START_TIMEOUT_S:
                raise OverBudget("was over before torch was loaded") from error
            raise
        self.ready = True

    def worker(self, tree: Path | None = None, **about: Any) -> "Worker":
        """A fresh process for this package or a tree; it may not have been able to load.

        Raises `CannotRun` if no process can be started.
        """
        with self.lock:
            self.wait()
            try:
                worker = self.fork()
            except Lost:
                if self.closed:
                    raise
                self.stop()
                self.start()
                self.wait()
                worker = self.fork()
        try:
            worker.started = worker.ask(
                START_TIMEOUT_S,
                tree=None if tree is None else str(tree),
                caches=str(self.folder / "caches"),
                threads=self.threads,
                **({"module": MEASURING} | self.about | about),
            )
        except BaseException:
            worker.end()
            raise
        return worker

    def fork(self) -> "Worker":
        """A worker that has not been told yet what it is for."""
        self.started += 1
        log = self.folder / f"log-{self.started}"
        with ExitStack() as stack:
            try:
                output = stack.enter_context(open(log, "wb"))
                ours, theirs = map(stack.enter_context, socket.socketpair())
            except OSError as error:
                raise CannotRun(f"no process could be started: {reason_of(error.errno)}") from error
            try:
                descriptors = [theirs.fileno(), output.fileno()]
                socket.send_fds(self.control, [MESSAGE.pack(b"fork", 0, 0, 0)], descriptors)
            except OSError as error:
                raise Lost("no process could be started: what starts them has ended") from error
            pid = self.read(b"born", START_TIMEOUT_S)
            pipe = socket.socket(fileno=ours.detach())
        self.exits.pop(pid, None)  # the number may have been another's before
        worker = self.living[pid] = Worker(self, pipe, pid, log)
        return worker

    def ending(self, pid: int) -> tuple[int | None, int]:
        """Exit code of a worker whose connection has ended, and how many processes it left.

        It is killed if it has not ended in a while.
        """
        with self.lock, suppress(CannotRun, OSError):
            if not self.ended(pid, GRACE_S):
                self.process.send_signal(signal.SIGCONT)  # a mechanism may stop its parent
                self.kill(pid)
                if not self.ended(pid, STUCK_S):
                    self.stop()
        return self.exits.get(pid, (None, 0))

    def ended(self, pid: int, timeout_s: float) -> bool:
        """Whether the end of a worker is known within a time. Raises `Lost`."""
        end = time.monotonic() + timeout_s
        while pid not in self.exits and (left_s := end - time.monotonic()) > 0:
            self.read(b"", left_s)
        return pid in self.exits

    def kill(self, pid: int) -> None:
        """Have a worker killed. Raises `OSError` if the server has ended."""
        self.control.sendall(MESSAGE.pack(b"kill", pid, 0, 0))

    def read(self, wanted: bytes, timeout_s: float) -> int:
        """Process id of the next message of that kind, or of any for `b""`.

        Ends of workers are noted on the way. Raises `CannotRun` if none comes.
        """
        end = time.monotonic() + timeout_s
        while True:
            data = b""
            with suppress(OSError, ValueError):  # ValueError: closed by another thread
                if not readable(self.control, end - time.monotonic()):
                    if not wanted:
                        return 0
                    raise Silent("the process that starts workers does not answer")
                data = self.control.recv(MESSAGE.size, socket.MSG_WAITALL)
            if len(data) < MESSAGE.size:
                said = last_line(self.folder / "log") or "what starts them has ended"
                raise Lost(f"no process could be started: {said}")
            word, pid, code, left = MESSAGE.unpack(data)
            assert isinstance(pid, int)
            if word == b"died":
                self.exits[pid] = code, left
                self.living.pop(pid, None)
            elif word == b"none":
                raise CannotRun(f"no process could be started: {reason_of(code)}")
            if wanted in (b"", word):
                return pid

    def close(self) -> None:
        """End every process; again does nothing."""
        self.closed = True
        self.stop()
        self.scratch.close()

    def stop(self) -> None:
        """End the server and what it has started."""
        with suppress(OSError):
            self.control.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for a message
        self.control.close()  # on which the server ends what it has started, and itself
        try:
            self.process.wait(GRACE_S if self.ready else 0)
        except subprocess.TimeoutExpired:
            for pid in (*self.living, self.process.pid):
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
            self.process.wait()
        for pid, worker in self.living.items():
            worker.pipe.close()
            self.exits[pid] = None, 0
        self.living.clear()


class Worker:
    """One measuring process; `started` says whether its package could be loaded."""

    def __init__(self, server: Server, pipe: socket.socket, pid: int, log: Path) -> None:
        self.server, self.pipe, self.pid, self.log = server, pipe, pid, log
        self.kills = oom_kills()
        self.started: Answer = {}
        self.asked = 0  # questions

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return self.pipe.fileno() >= 0

    def ask(self, timeout_s: float | None, **asked: Any) -> Answer:
        """The answer, or an outcome in its place; a process that is late is killed.

        Raises `OverBudget` where the end of everything is nearer than this question's time-out.
        """
        if self.started.get("outcome", "ok") != "ok":
            return self.started
        if not self.alive:
            return {"outcome": "crashed", "reason": "its process is gone", "lost": True}
        begun, left_s = time.monotonic(), self.server.left_s
        limit_s = left_s if timeout_s is None else min(timeout_s, left_s)
        self.asked += 1
        try:
            self.pipe.sendall(json.dumps([self.asked, asked]).encode() + b"\n")
            if line := self.line(limit_s):
                number, answer = json.loads(line)
                if number == self.asked:
                    return cast(Answer, answer)
                raise ValueError
        except OSError:
            self.pipe.close()
            return self.death()
        except (ValueError, TypeError):
            self.end()
            reason = "something else than its answer came out of the process"
            return {"outcome": "crashed", "reason": reason}
        left = self.end()
        if left_s <= limit_s:
            raise OverBudget(f"was over while waiting for {asked.get('mechanism', 'a process')}")
        return {
            "outcome": "timeout",
            "reason": f"no answer after {time.monotonic() - begun:.0f} s; killed",
            **({"notes": {"processes": left_running(left)}} if left else {}),
        }

    def line(self, timeout_s: float) -> bytes:
        """What the process sends next, or nothing if that does not end in time.

        Raises `OSError` at the end of the connection.
        """
        end = time.monotonic() + timeout_s
        data = bytearray()
        while not data.endswith(b"\n"):
            if not readable(self.pipe, end - time.monotonic()):
                return b""
            if not (more := self.pipe.recv(1 << 16)):
                raise ConnectionResetError
            data += more
        return bytes(data)

    def death(self) -> Answer:
        """Outcome and reason of a process that ended without an answer."""
        code, left = self.server.ending(self.pid)
        notes = {"notes": {"processes": left_running(left)}} if left else {}
        said = f": {words}" if (words := last_line(self.log)) else ""
        if code == -signal.SIGKILL and oom_kills() > self.kills:
            reason = "the kernel killed the process for memory"
            return {"outcome": "oom", "reason": reason, **notes}
        if code is not None and code < 0:
            reason = f"the process died of signal {-code}{said}"
            return {"outcome": "crashed", "reason": reason, **notes}
        if code is None:
            reason = f"the process ended with what had started it{said}"
            return {"outcome": "crashed", "reason": reason, "lost": True}
        reason = f"the process ended without an answer (exit {code}){said}"
        return {"outcome": "crashed", "reason": reason, **notes}

    def end(self) -> int:
        """End the process, and what it left running: how many; again does nothing."""
        if self.alive:
            self.pipe.close()
            with suppress(OSError), self.server.lock:
                self.server.kill(self.pid)
                _, left = self.server.ending(self.pid)
                return left
        return 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()


def readable(connection: socket.socket, timeout_s: float) -> bool:
    """Whether something arrives in time; `select` would refuse descriptors above 1,023."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(None if math.isinf(timeout_s) else max(0.0, timeout_s) * 1000))


def reason_of(number: int | None) -> str:
    """The system's words for an error number."""
    return os.strerror(number or 0).lower()


def left_running(count: int) -> str:
    """A note on processes that a mechanism left."""
    return f"started {count} {'process' if count == 1 else 'processes'} that had to be ended"


def last_line(log: Path) -> str:
    """The last line of what a process printed."""
    with suppress(OSError), open(log, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_BYTES))
        text = file.read().decode(errors="replace").strip()
        return text.splitlines()[-1] if text else ""
    return ""


def environment(threads: int) -> dict[str, str]:
    """The processes' variables: their number of threads, and one order of sets."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    dropped = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return {**kept, **dict.fromkeys(names, str(threads)), "PYTHONHASHSEED": "0"}
