"""One measuring process as its parent sees it: questions as numbered lines, and its end.

What the process prints comes through a pipe, which is read while an answer is awaited: however
much it is, only its end is kept, for the message about a crash.
"""

import json
import math
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from functools import partial
from io import FileIO
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, cast

from msgspec import ValidationError, convert

from attnbench.devices.cgroups import oom_kills
from attnbench.devices.host import process_s
from attnbench.devices.timing import increments
from attnbench.errors import OverBudget
from attnbench.records import Cause, Duration, Outcome, Sample

if TYPE_CHECKING:
    from attnbench.run.pool import Pool

GRACE_S = 5.0  # from the end of a connection to the end of its process
STUCK_S = 60.0  # from a kill to the end: the kernel may have much memory to free
STATUS = struct.Struct("<iii")  # as measure/server.py has it: process id, exit code, processes left
LOG_BYTES = 4_000  # kept of what a process prints
PIPE_BYTES = 1 << 16  # read at once: all that a pipe holds
# signals by which schedulers, users and guards of memory end processes; no fault raises them
SENT = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})

# what the answer to a question must have
NEEDED = MappingProxyType({"build": "iteration_s", "lap": "sample", "finish": "needs_new_process"})

Answer: TypeAlias = Mapping[str, Any]
LOST: Answer = MappingProxyType({"outcome": "crashed", "cause": Cause.KILLED})


class Answered(TypedDict, total=False):
    """What a process may answer, beside what is only passed on."""

    iteration_s: Duration
    wall_s: Duration
    sample: Sample
    needs_new_process: bool
    outcome: Outcome
    cause: Cause | None
    reason: str
    values: dict[str, int | float]
    notes: dict[str, str]


class Process(AbstractContextManager["Process"]):
    """One measuring process; `started` says whether its package could be loaded.

    The program that forked it says on the connection `status` how it ended.
    """

    def __init__(
        self, pool: "Pool", pid: int, status: socket.socket, pipe: socket.socket, output: FileIO
    ) -> None:
        self.pool, self.pid = pool, pid
        self.status, self.pipe, self.output = status, pipe, output
        self.printed = b""  # the end of it
        self.kills = oom_kills()
        self.is_killed = False  # by its parent
        self.started: Answer = {}
        self.asked = 0  # questions
        # CPU time in user mode by the kernel's count, NaN if it does not say: while this parent
        # waited for answers, and without a question, which was the case for `rested_s`
        self.used_s = self.idle_s = self.rested_s = 0.0
        self.answered_s = time.monotonic()
        self.user_s = increments(partial(process_s, pid, user=True))
        # once it has ended: exit code, if known, and how many processes it left running
        self.exit: tuple[int | None, int] | None = None

    @property
    def alive(self) -> bool:
        """Whether the connection is open."""
        return self.pipe.fileno() >= 0

    def ask(self, timeout_s: float | None, **asked: Any) -> Answer:
        """The answer, or an outcome in its place; a process that is late is killed.

        The answer has the cause `KILLED` if something other than its own code may have ended it.
        Raises `OverBudget` if the whole budget ends before this question's time limit.
        """
        if self.started.get("outcome", "ok") != "ok":
            return self.started
        if not self.alive:
            return {**LOST, "reason": "its process is gone"}
        begun, left_s = time.monotonic(), self.pool.left_s
        limit_s = left_s if timeout_s is None else min(timeout_s, left_s)
        self.asked += 1
        self.rested_s += begun - self.answered_s
        self.idle_s += self.user_s()
        try:
            self.pipe.sendall(json.dumps([self.asked, asked]).encode() + b"\n")
            line = self.line(limit_s)
            self.answered_s = time.monotonic()
            self.used_s += self.user_s()
            if line:
                return self.read(line)
        except OSError:
            self.pipe.close()
            return self.death()
        left = self.end()
        if left_s <= limit_s:
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
        end = time.monotonic() + timeout_s
        data = bytearray()
        while not data.endswith(b"\n"):
            sources = [self.pipe] if self.output.closed else [self.pipe, self.output]
            left_s = end - time.monotonic()
            ready = readable(left_s, *sources)
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
        with suppress(OSError, ValueError):  # ValueError: closed by another thread
            more = self.output.read(PIPE_BYTES)
            if more == b"":
                self.output.close()
            self.printed = (self.printed + (more or b""))[-LOG_BYTES:]

    def death(self) -> Answer:
        """Outcome and reason of a process that ended without an answer."""
        code, left = self.ending(GRACE_S)
        self.listen()
        self.output.close()
        printed = f": {line}" if (line := last_line(self.printed)) else ""
        if code is None:
            return {**LOST, "reason": f"the process ended together with its server{printed}"}
        died: dict[str, Any] = {"outcome": "crashed", "notes": left_running(left)}
        how = f"ended without an answer (exit {code})"
        if code < 0:
            how = f"was killed by signal {-code}"
        if -code in SENT:
            if code == -signal.SIGKILL and oom_kills() > self.kills:
                reason = "the kernel killed the process, as memory ran out"
                return {**died, "outcome": "oom", "reason": reason}
            if self.is_killed:
                how = "closed its connection and went on"
            else:
                died["cause"] = Cause.KILLED
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


def readable(timeout_s: float, *sources: socket.socket | FileIO) -> list[socket.socket | FileIO]:
    """The sources that have data, or reach their end, in time.

    By `poll`, since `select` refuses descriptors above 1,023.
    """
    poll = select.poll()
    of_descriptor = {source.fileno(): source for source in sources}
    for descriptor in of_descriptor:
        poll.register(descriptor, select.POLLIN)
    ready = poll.poll(None if math.isinf(timeout_s) else max(0.0, timeout_s) * 1000)
    return [of_descriptor[descriptor] for descriptor, _ in ready]


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


def checked(answer: Answer, do: str, iterations: int = 0, **asked: Any) -> Answer:
    """The answer with its sample as a `Sample`, or a failure if the answer is impossible."""
    if NEEDED[do] not in answer:
        return impossible(f"Object missing required field `{NEEDED[do]}`")
    try:
        told = {**answer, **convert(answer, Answered)}
    except ValidationError as error:
        return impossible(str(error))
    if do == "lap" and told["sample"].iterations != iterations:
        return impossible(f"{told['sample'].iterations} iterations in place of {iterations}")
    return told


def impossible(wrong: str) -> Answer:
    """The outcome of a case whose process gave an answer that would be refused on reading."""
    return {"outcome": "failed", "reason": f"its process gave an impossible answer: {wrong}"}
