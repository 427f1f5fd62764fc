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
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, suppress
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from attnbench.devices import SYSTEM
from attnbench.devices.cgroups import oom_kills
from attnbench.devices.host import cpu_s, faults, user_s
from attnbench.devices.timing import increments
from attnbench.errors import OverBudget
from attnbench.records import Cause, Outcome
from attnbench.records.messages import A, Failure, ProcessQuestion, read_answer, written
from attnbench.records.notes import left_running
from attnbench.running import stopping

GRACE_S = 5.0  # from the end of a connection to the end of its process
STUCK_S = 60.0  # from a kill to the end: the kernel may have much memory to free
LONGEST_S = 1e6  # that the system waits at once
# process id, exit code, processes left: as `measuring.server` sends them
STATUS = struct.Struct("<iii")
LOG_BYTES = 4_000  # kept of what a process prints
LONGEST_ANSWER = 1 << 27  # bytes; a plan has 650 for each case
FOREIGN = "the process sent something other than its answer"
# signals by which schedulers, users and guards of memory end processes; no fault raises them
SENT = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})


class Process(AbstractContextManager["Process"]):
    """One measuring process; `refused` says why its package could not be loaded, if it could not.

    The program that forked it says on the connection `status` how it ended. `user_s` gives its CPU
    time in user mode since the last call, as the kernel counts it; NaN if it does not say.
    """

    def __init__(
        self,
        left_s: Callable[[], float],
        pid: int,
        status: socket.socket,
        pipe: socket.socket,
        output: socket.socket,
    ) -> None:
        """A process that has been forked.

        left_s: gives the seconds until the whole budget ends
        pid: its process id
        status: on which the program that forked it tells of its end
        pipe: for questions and answers
        output: what it prints
        """
        self.left_s = left_s
        self.pid = pid
        self.status = status
        self.pipe = pipe
        self.output = output
        output.setblocking(False)
        self.printed = b""
        self.asked = 0  # questions
        self.begun_s = 0.0  # when the last one was asked
        self.begun_line = bytearray()  # what has come of the next line
        self.kills = oom_kills()
        self.is_killed = False  # by its parent
        self.refused: Failure | None = None
        self.user_s = increments(partial(user_s, pid))
        self.cpu_s = increments(partial(cpu_s, pid))
        self.faults = increments(partial(faults, pid))
        # once it has ended: exit code, if known, and how many processes it left running
        self.exit: tuple[int | None, int] | None = None

    def new_usage(self) -> tuple[float, int]:
        """All of its CPU time since the last call, to the nanosecond, NaN if the kernel does not
        say; and the pages that it has mapped meanwhile.
        """
        return self.cpu_s(), self.faults()

    @property
    def alive(self) -> bool:
        """Whether the connection is open."""
        return self.pipe.fileno() >= 0

    def ask(self, question: ProcessQuestion[A], limit_s: float) -> A | Failure:
        """The answer to a question, or why there is none; a process that is late is killed.

        The failure has the cause `KILLED` if something other than the process's own code may have
        ended it.
        Raises `OverBudget` if the whole budget ends before this question's time limit.
        """
        return self.send(question) or self.receive(question, limit_s)

    def send(self, question: ProcessQuestion[A]) -> Failure | None:
        """Ask a question, the answer to which `receive` or `poll` gives; why it cannot be asked."""
        if self.refused is not None:
            return self.refused
        if not self.alive:
            return failure_of_a_lost_process("its process is gone")
        self.begun_s = time.monotonic()
        self.asked += 1
        try:
            message = json.dumps([self.asked, written(question)])
            self.pipe.sendall(message.encode() + b"\n")
        except OSError:
            self.pipe.close()
            return self.death()
        return None

    def receive(self, question: ProcessQuestion[A], limit_s: float) -> A | Failure:
        """The answer to the question that was sent, as `ask` gives it, within so many seconds.

        Raises `OverBudget` as `ask` does.
        """
        left_s = self.left_s()
        if (answer := self.read_within(question, min(limit_s, left_s))) is not None:
            return answer
        children = self.end()
        if left_s <= limit_s:
            raise OverBudget(f"ended while waiting for {question.about}")
        return Failure(
            outcome=Outcome.TIMEOUT,
            reason=f"no answer after {time.monotonic() - self.begun_s:.0f} s; killed",
            notes=left_running(children),
        )

    def poll(self, question: ProcessQuestion[A]) -> A | Failure | None:
        """The answer to the question that was sent, or the end of its process; None before that."""
        return self.read_within(question, 0.0)

    def read_within(self, question: ProcessQuestion[A], limit_s: float) -> A | Failure | None:
        """The answer, or why there will be none; None if neither is known in time."""
        try:
            line = self.line(limit_s)
        except OSError:
            self.pipe.close()
            return self.death()
        return self.read(line, question) if line else None

    def wait(self, limit_s: float, *others: "Process") -> None:
        """Block until this process or one of others sends something or ends, or until it is time.

        What they print meanwhile is read.
        """
        end_s = time.monotonic() + limit_s
        processes = (self, *others)
        pipes = [process.pipe for process in processes]
        while all(pipe.fileno() >= 0 for pipe in pipes):
            left_s = end_s - time.monotonic()
            outputs = {p.output: p for p in processes if p.output.fileno() >= 0}
            ready = readable(left_s, *pipes, *outputs)
            for output in outputs.keys() & {*ready}:
                outputs[output].listen()
            if left_s <= 0 or any(pipe in ready for pipe in pipes):
                return

    def bind(self, cores: Collection[int]) -> None:
        """Let this process, which has no threads yet, run on these cores alone."""
        with suppress(OSError):  # it has ended, which the next question tells
            SYSTEM.bind(self.pid, cores)

    def stop(self) -> bool:
        """Stop it with all that it has started, until it may `go_on`; whether that was possible."""
        return stopping.stop(self.pid)

    def go_on(self) -> None:
        """Let it go on, with all that it has started."""
        stopping.go_on(self.pid)

    def read(self, line: bytes, question: ProcessQuestion[A]) -> A | Failure:
        """The answer in a line; a process that sent another line is killed."""
        if len(line) > LONGEST_ANSWER:
            self.end()
            reason = f"the process sent more than {LONGEST_ANSWER >> 20} MiB in place of an answer"
            return Failure(outcome=Outcome.CRASHED, reason=reason)
        try:
            number, data = json.loads(line)
        except (ValueError, TypeError, RecursionError):
            number = data = None
        if type(number) is not int or number != self.asked or not isinstance(data, dict):
            self.end()
            return Failure(outcome=Outcome.CRASHED, reason=FOREIGN)
        return read_answer(data, question)

    def line(self, limit_s: float) -> bytes:
        """The next line that the process sends; empty if it is not complete in time.

        What has come of it is kept. A line that is longer than any answer ends early.
        Raises `OSError` at the end of the connection.
        """
        end = time.monotonic() + limit_s
        data = self.begun_line
        while not data.endswith(b"\n") and len(data) <= LONGEST_ANSWER:
            left_s = end - time.monotonic()
            ready = readable(left_s, *(s for s in (self.pipe, self.output) if s.fileno() >= 0))
            if self.output in ready:
                self.listen()
            if self.pipe in ready:
                if not (received := self.pipe.recv(1 << 16)):
                    raise ConnectionResetError
                data += received
            elif left_s <= 0:
                return b""
        self.begun_line = bytearray()
        return bytes(data)

    def listen(self) -> None:
        """Read what the process has printed, and keep the end of it."""
        with suppress(OSError):  # nothing is left, or another thread has closed it
            if not (printed := self.output.recv(1 << 16)):
                self.output.close()
            self.printed = (self.printed + printed)[-LOG_BYTES:]

    def death(self) -> Failure:
        """Outcome and reason of a process that ended without an answer."""
        code, children = self.wait_for_exit(GRACE_S)
        self.listen()
        self.output.close()
        notes = left_running(children)
        if code == -signal.SIGKILL and oom_kills() > self.kills:
            reason = "the kernel killed the process, as memory ran out"
            return Failure(outcome=Outcome.OOM, reason=reason, notes=notes)
        cause = None
        if code is None:
            how = "ended together with its server"
            cause = Cause.KILLED
        elif self.is_killed:
            how = "closed its connection and went on"
        elif code < 0:
            how = f"was killed by signal {-code}"
            cause = Cause.KILLED if -code in SENT else None
        else:
            how = f"ended without an answer (exit {code})"
        printed = f": {line}" if (line := last_line(self.printed)) else ""
        reason = f"the process {how}{printed}"
        return Failure(outcome=Outcome.CRASHED, cause=cause, reason=reason, notes=notes)

    def wait_for_exit(self, grace_s: float) -> tuple[int | None, int]:
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
        return self.wait_for_exit(0.0)[1]

    def __exit__(self, *error: object) -> None:
        self.end()


def failure_of_a_lost_process(reason: str) -> Failure:
    """The failure of a process that something other than its own code may have ended."""
    return Failure(outcome=Outcome.CRASHED, cause=Cause.KILLED, reason=reason)


def ask_fresh(
    start: Callable[[], Process], question: ProcessQuestion[A], limit_s: float
) -> A | Failure:
    """The answer of a fresh process to one question; of a second if the first is killed.

    Something else may have ended that, or needed the memory.
    """
    for _ in range(2):
        with start() as process:
            answer = process.ask(question, limit_s)
        if not (isinstance(answer, Failure) and answer.is_killed):
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


def tail(log: Path) -> bytes:
    """The end of a file; empty if it cannot be read."""
    with suppress(OSError):
        return log.read_bytes()[-LOG_BYTES:]
    return b""


def last_line(printed: bytes) -> str:
    """The last line of what a process printed."""
    lines = printed.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""
