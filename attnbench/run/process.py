"""One measuring process as its parent sees it: questions as numbered lines, and its end.

What the process prints is read while an answer is awaited: however much it is, only its end is
kept, for the message about a crash.
"""

import json
import os
import signal
import socket
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from attnbench.devices.cgroups import oom_kills
from attnbench.devices.host import cpu_s, faults, user_s
from attnbench.devices.timing import increments
from attnbench.errors import OverBudget
from attnbench.records import Cause

if TYPE_CHECKING:
    from attnbench.run.pool import Pool

GRACE_S = 5.0  # from the end of a connection to the end of its process
STUCK_S = 60.0  # from a kill to the end: the kernel may have much memory to free
LONGEST_S = 1e6  # that the system waits at once
STATUS = struct.Struct("<iii")  # as measure/server.py has it: process id, exit code, processes left
LOG_BYTES = 4_000  # kept of what a process prints
# signals by which schedulers, users and guards of memory end processes; no fault raises them
SENT = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})

Answer: TypeAlias = Mapping[str, Any]
LOST: Answer = MappingProxyType({"outcome": "crashed", "cause": Cause.KILLED})


class Process(AbstractContextManager["Process"]):
    """One measuring process; `started` says whether its package could be loaded.

    The program that forked it says on the connection `status` how it ended. `user_s` gives its CPU
    time in user mode since the last call, as the kernel counts it; NaN if it does not say.
    """

    def __init__(
        self,
        pool: "Pool",
        pid: int,
        status: socket.socket,
        pipe: socket.socket,
        output: socket.socket,
    ) -> None:
        self.pool, self.pid = pool, pid
        self.status, self.pipe, self.output = status, pipe, output
        output.setblocking(False)
        self.printed, self.asked, self.kills = b"", 0, oom_kills()
        self.is_killed = False  # by its parent
        self.started: Answer = {}
        self.user_s = increments(partial(user_s, pid))
        self.cpu_s = increments(partial(cpu_s, pid))
        self.faults = increments(partial(faults, pid))
        # once it has ended: exit code, if known, and how many processes it left running
        self.exit: tuple[int | None, int] | None = None

    def used(self) -> tuple[float, int]:
        """All of its CPU time since the last call, to the nanosecond, NaN if the kernel does not
        say; and the pages that it has mapped meanwhile.
        """
        return self.cpu_s(), self.faults()

    @property
    def alive(self) -> bool:
        """Whether the connection is open."""
        return self.pipe.fileno() >= 0

    def ask(self, timeout_s: float, **asked: Any) -> Answer:
        """The answer, or an outcome in its place; a process that is late is killed.

        The answer has the cause `KILLED` if something other than its own code may have ended it.
        Raises `OverBudget` if the whole budget ends before this question's time limit.
        """
        if self.started.get("outcome", "ok") != "ok":
            return self.started
        if not self.alive:
            return {**LOST, "reason": "its process is gone"}
        begun, left_s = time.monotonic(), self.pool.left_s
        self.asked += 1
        try:
            self.pipe.sendall(json.dumps([self.asked, asked]).encode() + b"\n")
            if line := self.line(min(timeout_s, left_s)):
                return self.read(line)
        except OSError:
            self.pipe.close()
            return self.death()
        left = self.end()
        if left_s <= timeout_s:
            raise OverBudget(f"ended while waiting for {asked.get('mechanism', 'a process')}")
        reason = f"no answer after {time.monotonic() - begun:.0f} s; killed"
        return {"outcome": "timeout", "reason": reason, "notes": left_running(left)}

    def read(self, line: bytes) -> Answer:
        """The answer in a line; a process that sent another line is killed."""
        try:
            number, answer = json.loads(line)
            if number != self.asked or not isinstance(answer["outcome"], str):
                raise ValueError
        except (ValueError, TypeError, KeyError):
            self.end()
            reason = "the process sent something other than its answer"
            return {"outcome": "crashed", "reason": reason}
        return cast(Answer, answer)

    def line(self, timeout_s: float) -> bytes:
        """The next line that the process sends; empty if it is not complete in time.

        Raises `OSError` at the end of the connection.
        """
        end, data = time.monotonic() + timeout_s, bytearray()
        while not data.endswith(b"\n"):
            left_s = end - time.monotonic()
            ready = readable(left_s, *(s for s in (self.pipe, self.output) if s.fileno() >= 0))
            if self.output in ready:
                self.listen()
            if self.pipe in ready:
                if not (more := self.pipe.recv(1 << 16)):
                    raise ConnectionResetError
                data += more
            elif left_s <= 0:
                return b""
        return bytes(data)

    def listen(self) -> None:
        """Read what the process has printed, and keep the end of it."""
        with suppress(OSError):  # nothing is left, or another thread has closed it
            if not (more := self.output.recv(1 << 16)):
                self.output.close()
            self.printed = (self.printed + more)[-LOG_BYTES:]

    def death(self) -> Answer:
        """Outcome and reason of a process that ended without an answer."""
        code, left = self.ending(GRACE_S)
        self.listen()
        self.output.close()
        died: dict[str, Any] = {"outcome": "crashed", "notes": left_running(left)}
        if code == -signal.SIGKILL and oom_kills() > self.kills:
            reason = "the kernel killed the process, as memory ran out"
            return {**died, "outcome": "oom", "reason": reason}
        if code is None:
            how, died = "ended together with its server", {**died, **LOST}
        elif self.is_killed:
            how = "closed its connection and went on"
        elif code < 0:
            how, died = f"was killed by signal {-code}", {**died, **(LOST if -code in SENT else {})}
        else:
            how = f"ended without an answer (exit {code})"
        printed = f": {line}" if (line := last_line(self.printed)) else ""
        return {**died, "reason": f"the process {how}{printed}"}

    def ending(self, grace_s: float) -> tuple[int | None, int]:
        """Exit code, if known, and how many processes it left running.

        It is killed if it has not ended by itself after `grace_s`.
        """
        if self.exit is None:
            self.exit = None, 0
            with self.status, suppress(OSError, ValueError):
                if not readable(grace_s, self.status):
                    self.is_killed = True
                    with suppress(ProcessLookupError):
                        os.kill(self.pid, signal.SIGKILL)
                _, code, left = STATUS.unpack(receive(self.status, STATUS.size, STUCK_S))
                self.exit = code, left
        return self.exit

    def end(self) -> int:
        """End the process and any it left running; returns how many those were."""
        if not self.alive:
            return 0
        self.pipe.close()
        self.output.close()
        return self.ending(0.0)[1]

    def __exit__(self, *error: object) -> None:
        self.end()


def ask_fresh(start: Callable[[], Process], timeout_s: float, **asked: Any) -> Answer:
    """The answer of a fresh process to one question; of a second if the first is killed.

    Something else may have ended that, or needed the memory.
    """
    for _ in range(2):
        with start() as process:
            answer = process.ask(timeout_s, **asked)
        if answer.get("cause") != Cause.KILLED:
            break
    return answer


def readable(timeout_s: float, *sources: socket.socket) -> list[Any]:
    """The sources that have data, or reach their end, in time."""
    return wait(sources, min(max(0.0, timeout_s), LONGEST_S))


def receive(source: socket.socket, size: int, timeout_s: float) -> bytes:
    """So many bytes. Raises `TimeoutError` if none come, `OSError` at the end of the connection."""
    if not readable(timeout_s, source):
        raise TimeoutError
    data = source.recv(size, socket.MSG_WAITALL)
    if len(data) < size:
        raise ConnectionResetError
    return data


def left_running(count: int) -> dict[str, str]:
    """The note on processes that a mechanism left running, if there were any."""
    noun = "process" if count == 1 else "processes"
    return {"processes": f"started {count} {noun} that had to be ended"} if count else {}


def tail(log: Path) -> bytes:
    """The end of a file; empty if it cannot be read."""
    with suppress(OSError):
        return log.read_bytes()[-LOG_BYTES:]
    return b""


def last_line(printed: bytes) -> str:
    """The last line of what a process printed."""
    lines = printed.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""
