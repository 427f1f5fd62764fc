"""The program that has loaded torch, and forks every measuring process.

That program is `measuring/server.py`. Its script is given as a path, so that a process can load the
package of another source tree; `modules` are those that all processes share.
"""

import json
import math
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from attnbench.devices import SYSTEM
from attnbench.errors import CannotRun, NoProgram, OverBudget
from attnbench.records import messages, storage
from attnbench.running.process import (
    GRACE_S,
    STATUS,
    STUCK_S,
    Process,
    ask_fresh,
    last_line,
    receive,
    tail,
)

START_TIMEOUT_S = 300.0  # importing torch on a cold disk
MEASURING = "attnbench.measuring.worker"  # the module of a process, unless another is named
# loaded before forking, since each process would need seconds; optimisers import the second
TORCH = ("torch", "torch._dynamo")
NO_TORCH = "torch is not installed; pip install torch (only reports of stored sweeps need none)"
# set by a hook of git that calls attnbench, for the repository and index of the hook
HOOK_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")


class Pool(AbstractContextManager["Pool"]):
    """The program that has loaded torch and forks each process; a context manager.

    Where its memory lies favours one code over another by 3 to 5 % (standard deviation of a ratio)
    as long as it lives: a pool of another `layout` has another hash seed and stack position, and
    one for each round makes that a part of how rounds differ. It starts on the cores `starts_on`,
    by default on any.

    script:    the program, `measuring/server.py`
    modules:   what it loads before it forks
    threads:   of each process
    layout:    number of the layout of its memory
    starts_on: cores on which it starts; none: any
    within:    where its temporary folder is made; None: where the system has such
    about:     what each process is told further, as fields of `Load`
    """

    def __init__(
        self,
        script: Path,
        *,
        modules: tuple[str, ...] = TORCH,
        threads: int = 1,
        layout: int = 0,
        starts_on: Collection[int] = (),
        within: Path | None = None,
        **about: Any,
    ) -> None:
        if os.name != "posix":
            raise CannotRun(
                "measuring needs Linux, or another POSIX system; reports of stored sweeps do not"
            )
        self.script = script
        self.threads = threads
        self.layout = layout
        self.about = about
        self.modules = modules
        self.starts_on = sorted(starts_on)
        self.end_s = math.inf
        self.closed = False
        self.by_layout: dict[int, Pool] = {}
        self.holders: dict[str, Process | None] = {}  # by series; None: it cannot be held
        # where this process is killed, the program removes the folder as it ends, if it can
        self.scratch = storage.TemporaryFolder(within)
        self.folder = self.scratch.path
        try:
            self.start()
        except BaseException:
            self.scratch.close()
            raise

    def __exit__(self, *error: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the program that forks."""
        self.ready = False
        self.scratch.hold()  # a program that ended has removed it
        self.control, theirs = socket.socketpair()
        with theirs, open(self.folder / "log", "wb") as log:
            self.program = subprocess.Popen(
                # -P: the script's own folder is not an import path
                [sys.executable, "-P", str(self.script)],
                stdin=theirs.fileno(),
                stdout=log,
                stderr=log,
                env=process_variables(self.threads, self.folder, self.layout),
                start_new_session=True,  # the terminal's signals are for the parent
            )
        if self.starts_on:  # elsewhere something is being timed
            SYSTEM.bind(self.program.pid, self.starts_on)
        self.control.sendall(json.dumps([os.getpid(), self.modules]).encode())

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

    def of_layout(self, layout: int, starts_on: Collection[int] = ()) -> "Pool":
        """The pool of the same processes in this layout, started when first needed."""
        if layout != self.layout and layout not in self.by_layout:
            self.by_layout[layout] = Pool(
                self.script,
                modules=self.modules,
                threads=self.threads,
                layout=layout,
                starts_on=starts_on,
                within=self.folder,
                **self.about,
            )
        pool = self.by_layout.get(layout, self)
        pool.end_s = self.end_s
        return pool

    def of_round(self, round_: int, rounds: int = 0, starts_on: Collection[int] = ()) -> "Pool":
        """The pool whose layout is the round's number; those of other rounds end.

        The next of `rounds` starts meanwhile on the cores `starts_on`, if there are any.
        """
        for ended in self.by_layout.keys() - {round_, round_ + 1}:
            self.by_layout.pop(ended).close()
        pool = self.of_layout(round_)
        if starts_on and round_ + 1 < rounds:
            self.of_layout(round_ + 1, starts_on)
        return pool

    def wait(self) -> None:
        """Block until torch is loaded. Raises `CannotRun`, or `OverBudget`."""
        if not self.ready:
            self.receive(self.control, 1, START_TIMEOUT_S, "ended before torch was loaded")
            if self.starts_on:
                SYSTEM.bind(self.program.pid, SYSTEM.cores())
        self.ready = True

    def process(self, tree: Path | None = None, **about: Any) -> "Process":
        """A fresh process for this package or a tree; `refused` says why it could not load.

        `about` are fields of `Load`, which replace those of the pool.
        Raises `CannotRun` if no process can be started.
        """
        try:
            process = self.fork()
        except NoProgram:
            if self.closed:
                raise
            self.stop()
            self.start()
            process = self.fork()
        try:
            question = messages.Load(
                tree=None if tree is None else str(tree),
                caches=str(self.folder / "caches"),
                threads=self.threads,
                **({"module": MEASURING} | self.about | about),
            )
            answer = process.ask(question, START_TIMEOUT_S)
        except BaseException:
            process.end()
            raise
        process.refused = answer if isinstance(answer, messages.Failure) else None
        return process

    def hold(self, series: str, tree: Path, **about: Any) -> None:
        """Start the process from which those of a series are forked, unless it is there.

        It has done what all of them need. Each series has its own, also on the same tree, so that
        how they happen to differ counts as noise. Raises `CannotRun` if none can be started.
        """
        holder = self.holders.get(series)
        if series in self.holders and (holder is None or holder.alive):
            return
        started = self.process(tree, **about)
        if isinstance(started.ask(messages.Hold(), START_TIMEOUT_S), messages.Failure):
            started.end()
        self.holders[series] = started if started.alive else None

    def process_of(self, series: str, tree: Path, **about: Any) -> "Process":
        """A process of a series: a fork of the one that is held for it, or else a fresh one.

        Raises `CannotRun` if no process can be started.
        """
        if holder := self.holders.get(series):
            try:
                return self.fork_from(holder.pipe)
            except NoProgram:
                holder.end()
        return self.process(tree, **about)

    def ask(
        self, question: messages.ProcessQuestion[messages.A], limit_s: float, module: str = ""
    ) -> messages.A | messages.Failure:
        """The answer of a fresh process to one question; of a second if the first is killed.

        The worker of `module` answers, by default of the one that the pool is for.
        Raises `CannotRun` if no process can be started.
        """
        about: dict[str, Any] = {"module": module} if module else {}
        return ask_fresh(partial(self.process, **about), question, limit_s)

    def fork(self) -> "Process":
        """A new process that has not been asked anything, once torch is loaded."""
        self.wait()
        return self.fork_from(self.control)

    def fork_from(self, control: socket.socket) -> "Process":
        """A new process of the program at the other end of this connection."""
        with ExitStack() as ours, ExitStack() as theirs:
            ends = list[socket.socket]()  # of status, questions, output
            descriptors = list[int]()
            try:
                for _ in range(3):
                    near_end, far_end = socket.socketpair()
                    ends.append(ours.enter_context(near_end))
                    descriptors.append(theirs.enter_context(far_end).fileno())
            except OSError as error:
                raise cannot_start(error.errno) from error
            try:
                socket.send_fds(control, [b"f"], descriptors)
            except OSError as error:
                reason = "no process could be started: the server has ended"
                raise NoProgram(reason) from error
            if SYSTEM.keeps_sent:
                theirs.close()
            born = self.receive(ends[0], STATUS.size, STUCK_S, "ended before a process was started")
            pid, code, _ = STATUS.unpack(born)
            if pid < 0:
                raise cannot_start(code)
            ours.pop_all()
        return Process(lambda: self.left_s, pid, *ends)

    def receive(self, source: socket.socket, size: int, most_s: float, moment: str) -> bytes:
        """What the program sends. Raises `NoProgram`, or `OverBudget` if the budget ends first.

        source: the connection
        size:   how many bytes are expected
        most_s: seconds to wait at most
        moment: what is said of the budget if it ends first
        """
        left_s = self.left_s
        try:
            return receive(source, size, min(most_s, left_s))
        except TimeoutError as error:
            if left_s < most_s:
                raise OverBudget(moment) from error
            raise NoProgram("the process that starts workers does not answer") from error
        except (OSError, ValueError) as error:  # ValueError: it is closed
            reason = last_line(tail(self.folder / "log")) or "the server has ended"
            reason = NO_TORCH if reason.endswith("No module named 'torch'") else reason
            raise NoProgram(f"no process could be started: {reason}") from error

    def close(self) -> None:
        """End every process; closing twice is harmless."""
        self.closed = True
        for pool in self.by_layout.values():
            pool.close()
        self.stop()
        self.scratch.close()

    def stop(self) -> None:
        """End the program, and with it every process that it forked."""
        for holder in self.holders.values():
            if holder is not None:
                holder.end()
        self.holders.clear()
        with suppress(OSError):
            self.control.shutdown(socket.SHUT_RDWR)
        self.control.close()
        try:
            self.program.wait(GRACE_S if self.ready else 0)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.program.pid, signal.SIGKILL)
            self.program.wait()


def cannot_start(code: int | None) -> CannotRun:
    """The system has refused what a process needs, for this reason."""
    return CannotRun(f"no process could be started: {os.strerror(code or 0).lower()}")


def process_variables(threads: int, folder: Path, layout: int = 0) -> dict[str, str]:
    """Environment variables of the processes: number of threads, a fixed hash seed, none of git's.

    `layout` is the hash seed, and chooses the size of the environment, which moves the stack.

    Triton caches the fastest configurations of kernels, so that one process searches for them.
    torch asks NVML whether there is a GPU, since the driver could not be used after a fork.
    torch.compile keeps its files in the folder, so that nothing has been compiled before, and
    starts no processes, which would be left running when a case is killed.
    """
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
    inherited = {name: value for name, value in os.environ.items() if name not in HOOK_VARIABLES}
    fixed = {
        "PYTHONHASHSEED": str(layout),
        "ATTNBENCH_FOLDER": str(folder),
        "ATTNBENCH_LAYOUT": "x" * random.Random(layout).randrange(4096),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TRITON_CACHE_AUTOTUNING": "1",
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    return {**inherited, **dict.fromkeys(names, str(threads)), **fixed}
