"""Start and end measuring processes.

The server's script is given as a path and runs as a separate program, so that a worker can load the
package of another source tree; `preload` names the modules that workers of this package share.
"""

import json
import math
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any

from attnbench.errors import CannotRun
from attnbench.records import Cause
from attnbench.run.workers import Answer, OverBudget, WorkerHandle, last_line, readable, tail
from attnbench.store.scratch import Scratch

START_TIMEOUT_S = 300.0  # importing torch on a cold disk
GRACE_S = 5.0  # from the end of a connection to the end of its process
STUCK_S = 60.0  # from a kill to the end: the kernel may have much memory to free
MEASURING = "attnbench.measure.worker"  # the module of a worker, unless another is named
# loaded before forking, since each process would need seconds; optimisers import the second
TORCH = ("torch", "torch._dynamo")
COMPILER = "torch._inductor.compile_fx"  # what compiled forms load besides, in seconds
MESSAGE = struct.Struct("<4siii")  # as measure/server.py has it
# set by a hook of git that calls attnbench, for the repository and index of the hook
HOOK_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")


class ServerTimeout(CannotRun):
    """The server has not answered in time."""


class ServerDied(CannotRun):
    """The server has ended."""


class ServerHandle(AbstractContextManager["ServerHandle"]):
    """The process that has imported torch and forks each worker; a context manager.

    It starts on the cores `starts_on`, by default on any.
    """

    def __init__(
        self,
        script: Path,
        *,
        preload: tuple[str, ...] = (),
        imports: tuple[str, ...] = TORCH,
        threads: int = 1,
        layout: int = 0,
        starts_on: Collection[int] = (),
        compiles: bool = False,
        **about: Any,
    ) -> None:
        if not hasattr(os, "fork"):
            raise CannotRun("measuring forks processes; this system has no fork")
        self.script, self.preload, self.threads, self.about = script, preload, threads, about
        self.imports, self.layout = imports, layout
        self.options = dict(about, preload=preload, imports=imports, threads=threads)
        self.end_s = math.inf
        self.starts_on, self.compiles, self.closed = sorted(starts_on), compiles, False
        self.living: dict[int, WorkerHandle] = {}  # by process id
        self.lock = threading.RLock()  # two threads may use it, one for each tree
        self.scratch = Scratch()
        self.folder = self.scratch.folder
        try:
            self.start()
        except BaseException:
            self.scratch.close()
            raise

    def __exit__(self, *error: object) -> None:
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
                env=environment(self.threads, self.folder, self.layout),
                start_new_session=True,  # the terminal's signals are for the parent
            )
        modules = (*self.imports, *self.preload, *[COMPILER] * self.compiles)
        self.control.sendall(json.dumps([os.getpid(), self.starts_on, modules]).encode())

    def load_compiler(self) -> None:
        """Preload torch's compiler for later processes, for the forms that it compiles."""
        self.wait()
        self.compiles = True
        with suppress(OSError), self.lock:  # a server that has ended is started again
            self.control.sendall(MESSAGE.pack(b"load", 0, 0, 0))

    @contextmanager
    def until(self, end_s: float) -> Iterator[None]:
        """End every wait inside the block at this time of `time.monotonic`."""
        self.end_s = end_s
        try:
            yield
        finally:
            self.end_s = math.inf

    @property
    def left_s(self) -> float:
        """Seconds until that time."""
        return max(0.0, self.end_s - time.monotonic())

    def with_layout(self, layout: int, starts_on: Collection[int] = ()) -> "ServerHandle":
        """A server for the same processes, but with another hash seed and stack position."""
        how: dict[str, Any] = {"layout": layout, "starts_on": starts_on, "compiles": self.compiles}
        server = ServerHandle(self.script, **how, **self.options)
        server.end_s = self.end_s
        return server

    def wait(self) -> None:
        """Block until torch is loaded. Raises `CannotRun`, or `OverBudget`."""
        if not self.ready:
            self.read_in_time(b"open", START_TIMEOUT_S, "ended before torch was loaded")
        self.ready = True

    def worker(self, tree: Path | None = None, **about: Any) -> WorkerHandle:
        """A fresh process for this package or a tree; `started` says whether it could load.

        Raises `CannotRun` if no process can be started.
        """
        with self.lock:
            try:
                worker = self.fork()
            except (ServerDied, ServerTimeout):
                if self.closed:
                    raise
                self.stop()
                self.start()
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

    def ask(self, timeout_s: float, module: str | None = None, **asked: Any) -> Answer:
        """The answer of a fresh process to one question; of a second if the first is killed.

        Raises `CannotRun` if no process can be started.
        """
        about: dict[str, Any] = {"module": module} if module else {}
        for _ in range(2):
            with self.worker(**about) as worker:
                answer = worker.ask(timeout_s, **asked)
            if answer.get("cause") != Cause.KILLED:
                break
        return answer

    def fork(self) -> WorkerHandle:
        """A new worker that has not been asked anything, once torch is loaded."""
        self.wait()
        with ExitStack() as stack:
            try:
                self.scratch.restore()
                ours, theirs = map(stack.enter_context, socket.socketpair())
                printed, output = map(stack.enter_context, open_pipe())
            except OSError as error:
                reason = os.strerror(error.errno or 0).lower()
                raise CannotRun(f"no process could be started: {reason}") from error
            self.resumed()  # a mechanism may have stopped it
            try:
                descriptors = [theirs.fileno(), output.fileno()]
                socket.send_fds(self.control, [MESSAGE.pack(b"fork", 0, 0, 0)], descriptors)
            except OSError as error:
                raise ServerDied("no process could be started: the server has ended") from error
            pid = self.read_in_time(b"born", STUCK_S, "ended before a process was started")
            for given in (theirs, output):
                given.close()
            stack.pop_all()
        worker = self.living[pid] = WorkerHandle(self, ours, printed, pid)
        return worker

    def resumed(self) -> bool:
        """Resume the server if it was stopped; returns whether it was, if the system can tell."""
        stopped = None
        if hasattr(os, "waitid"):
            with suppress(ChildProcessError):
                state = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
                stopped = os.waitid(os.P_PID, self.process.pid, state)
        self.process.send_signal(signal.SIGCONT)
        return stopped is not None

    def ending(self, worker: WorkerHandle) -> tuple[int | None, int]:
        """Exit code of a worker whose connection has ended, and how many processes it left.

        It is killed if it does not end by itself.
        """
        with self.lock, suppress(CannotRun, OSError):
            self.resumed()
            if not self.ended(worker, GRACE_S):
                worker.is_killed = True
                self.kill(worker.pid)
                if not self.ended(worker, STUCK_S):
                    self.stop()
        return worker.exit or (None, 0)

    def ended(self, worker: WorkerHandle, timeout_s: float) -> bool:
        """Whether the worker is known to have ended within `timeout_s`. Raises `ServerDied`."""
        end = time.monotonic() + timeout_s
        while worker.exit is None and (left_s := end - time.monotonic()) > 0:
            self.read(b"", left_s)
        return worker.exit is not None

    def kill(self, pid: int) -> None:
        """Let the server kill a worker. Raises `OSError` if the server has ended."""
        self.control.sendall(MESSAGE.pack(b"kill", pid, 0, 0))

    def read_in_time(self, wanted: bytes, timeout_s: float, ended: str) -> int:
        """As `read`, but raises `OverBudget` with `ended` if the budget ends first."""
        left_s = self.left_s
        try:
            return self.read(wanted, min(timeout_s, left_s))
        except ServerTimeout as error:
            if left_s < timeout_s:
                raise OverBudget(ended) from error
            raise

    def read(self, wanted: bytes, timeout_s: float) -> int:
        """Process id of the next message of the wanted kind, or of any kind for `b""`.

        Records ends of workers on the way. Raises `CannotRun` if no message comes.
        """
        end = time.monotonic() + timeout_s
        while True:
            data = b""
            with suppress(OSError, ValueError):  # ValueError: closed by another thread
                if not readable(end - time.monotonic(), self.control):
                    if not wanted:
                        return 0
                    raise ServerTimeout("the process that starts workers does not answer")
                data = self.control.recv(MESSAGE.size, socket.MSG_WAITALL)
            if len(data) < MESSAGE.size:
                reason = last_line(tail(self.folder / "log")) or "the server has ended"
                raise ServerDied(f"no process could be started: {reason}")
            word, pid, code, left = MESSAGE.unpack(data)
            assert isinstance(pid, int)
            if word == b"died" and (worker := self.living.pop(pid, None)):
                worker.exit = code, left
            elif word == b"born" and pid < 0:
                raise CannotRun(f"no process could be started: {os.strerror(code).lower()}")
            if wanted in (b"", word):
                return pid

    def close(self) -> None:
        """End every process; closing twice is harmless."""
        self.closed = True
        self.stop()
        self.scratch.close()

    def stop(self) -> None:
        """End the server and its workers."""
        with suppress(OSError):
            self.control.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for a message
        self.control.close()  # which makes the server end its workers and itself
        try:
            self.process.wait(GRACE_S if self.ready else 0)
        except subprocess.TimeoutExpired:
            for pid in (*self.living, self.process.pid):
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
            self.process.wait()
        for worker in self.living.values():
            worker.hang_up()
            worker.exit = None, 0
        self.living.clear()


def open_pipe() -> tuple[FileIO, FileIO]:
    """The two ends of a pipe; reading does not wait."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    return FileIO(read), FileIO(write, "w")


def environment(threads: int, folder: Path, layout: int = 0) -> dict[str, str]:
    """Environment variables of the processes: number of threads, a fixed hash seed, none of git's.

    `layout` is the hash seed, and chooses the size of the environment, which moves the stack.

    Triton caches the fastest configurations of kernels, so that one process searches for them.
    torch asks NVML whether there is a GPU, since the driver could not be used after a fork. glibc
    asks for huge pages, which `measure.allocator` allows where it wants them. torch.compile
    keeps its files in the folder, so that nothing has been compiled before, and starts no
    processes, which would be left running when a case is killed.
    """
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    kept = {name: value for name, value in os.environ.items() if name not in HOOK_VARIABLES}
    tunables = ":".join(filter(None, (kept.get("GLIBC_TUNABLES"), "glibc.malloc.hugetlb=1")))
    fixed = {
        "PYTHONHASHSEED": str(layout),
        "ATTNBENCH_LAYOUT": "x" * random.Random(layout).randrange(4096),
        "GLIBC_TUNABLES": tunables,
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TRITON_CACHE_AUTOTUNING": "1",
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    return {**kept, **dict.fromkeys(names, str(threads)), **fixed}
