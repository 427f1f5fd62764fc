"""Start the processes of a comparison's sides, ask them, wait without spinning, end them.

The script arrives as a path: it is run by itself, so that a side loads its own tree's package.
"""

import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from attnbench.errors import CannotRun
from attnbench.run.scratch import Scratch

START_TIMEOUT_S = 300.0  # importing torch on a cold disk
LOG_BYTES = 2_000

Answer = Mapping[str, Any]


class OverBudget(CannotRun):
    """The time of all was over before a process answered; the text goes on from its name."""


class Sides:
    """The process that has imported torch, and from which each side is forked; a context."""

    def __init__(self, script: Path, *, own: bool = False, threads: int = 1, seed: int = 0) -> None:
        if not hasattr(os, "fork"):
            raise CannotRun("comparing two revisions forks processes; this system has no fork")
        self.script, self.own, self.threads, self.seed = script, own, threads, seed
        self.ready = False
        self.end_s = math.inf
        self.scratch = Scratch()
        self.folder = self.scratch.folder
        self.control, theirs = socket.socketpair()
        with theirs, open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                # -P: the script's own folder is not an import path
                [sys.executable, "-P", str(script)],
                stdin=theirs.fileno(),
                stdout=log,
                stderr=log,
                env=environment(threads),
                start_new_session=True,  # Ctrl-C is for the parent
            )

    @property
    def log(self) -> Path:
        """What the processes print."""
        return self.folder / "log"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

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
        """Seconds until the end."""
        return max(0.0, self.end_s - time.monotonic())

    def wait(self) -> None:
        """Block until torch is loaded. Raises `CannotRun`."""
        if self.ready:
            return
        left_s = self.left_s
        # a time-out of 0 would mean not to wait at all, and another error
        self.control.settimeout(max(0.001, min(START_TIMEOUT_S, left_s)))
        try:
            started = self.control.recv(1)
        except TimeoutError as error:
            if left_s < START_TIMEOUT_S:
                raise OverBudget("was over before torch was loaded") from error
            started = b""
        if not started:
            raise CannotRun(f"no process could be started to measure in: {self.last_words()}")
        self.control.settimeout(None)
        self.ready = True

    def side(self, tree: Path) -> "Side":
        """A fresh process that has the tree's mechanisms; it may not have been able to load."""
        ours, theirs = socket.socketpair()
        side = Side(Connection(ours.detach()), self)
        try:
            with theirs:
                socket.send_fds(self.control, [b"."], [theirs.fileno()])
            side.started = side.ask(
                START_TIMEOUT_S,
                tree=str(tree),
                own=self.own,
                measure=str(self.script.parent),
                caches=f"{self.folder}/caches",
                threads=self.threads,
                seed=self.seed,
            )
        except BaseException:
            side.end()
            raise
        side.pid = int(side.started.get("pid", 0))
        return side

    def last_words(self) -> str:
        """The end of what was printed, on one line."""
        lines = self.log.read_bytes()[-LOG_BYTES:].decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def close(self) -> None:
        """End every process; again does nothing."""
        self.control.close()
        if self.process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.scratch.close()


class Side:
    """One process of one side; `started` says whether its tree could be loaded."""

    def __init__(self, pipe: Connection, sides: Sides) -> None:
        self.pipe, self.sides = pipe, sides
        self.pid = 0
        self.started: Answer = {}

    def ask(self, timeout_s: float, **asked: Any) -> Answer:
        """The answer, or `crashed` or `timeout` in its place; a process that is late is killed.

        Raises `OverBudget` where the end of all is nearer than this question's time-out.
        """
        if self.started.get("outcome", "ok") != "ok":
            return self.started
        if self.pipe.closed:
            return {"outcome": "crashed", "reason": "its process is gone"}
        left_s = self.sides.left_s
        try:
            self.pipe.send_bytes(json.dumps(asked).encode())
            if self.pipe.poll(min(timeout_s, left_s)):
                answer: Answer = json.loads(self.pipe.recv_bytes())
                return answer
        except (EOFError, OSError):
            self.end()
            return {"outcome": "crashed", "reason": f"its process died: {self.sides.last_words()}"}
        self.end()
        if left_s < timeout_s:
            what = asked.get("mechanism") or asked.get("name") or asked.get("tree")
            raise OverBudget(f"was over while waiting for {what}")
        return {"outcome": "timeout", "reason": f"no answer after {timeout_s:.0f} s"}

    def end(self) -> None:
        """End the process."""
        if not self.pipe.closed:
            self.pipe.close()
            with suppress(ProcessLookupError):
                if self.pid:
                    os.kill(self.pid, signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()


def environment(threads: int) -> dict[str, str]:
    """The processes' variables: so many threads, and one order of sets."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    dropped = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return {**kept, **dict.fromkeys(names, str(threads)), "PYTHONHASHSEED": "0"}
