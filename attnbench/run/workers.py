"""One measuring process as its parent sees it: questions by numbered lines, and its end."""

import json
import math
import os
import select
import signal
import socket
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from attnbench.errors import CannotRun
from attnbench.run.cgroups import oom_kills

if TYPE_CHECKING:
    from attnbench.run.processes import Server

LOG_BYTES = 4_000

Answer = Mapping[str, Any]


class OverBudget(CannotRun):
    """The whole budget ended before a process answered; the text continues a sentence about it."""


class Worker(AbstractContextManager["Worker"]):
    """One measuring process; `started` says whether its package could be loaded."""

    def __init__(self, server: "Server", pipe: socket.socket, pid: int, log: Path) -> None:
        self.server, self.pipe, self.pid, self.log = server, pipe, pid, log
        self.kills = oom_kills()
        self.started: Answer = {}
        self.asked = 0  # questions
        # once it has ended: exit code, if known, and how many processes it left running
        self.exit: tuple[int | None, int] | None = None

    @property
    def alive(self) -> bool:
        """Whether the connection is open."""
        return self.pipe.fileno() >= 0

    def ask(self, timeout_s: float | None, **asked: Any) -> Answer:
        """The answer, or an outcome in its place; a process that is late is killed.

        The answer is `lost` if the process died together with all others.
        Raises `OverBudget` if the whole budget ends before this question's time limit.
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
            reason = "the process sent something other than its answer"
            return {"outcome": "crashed", "reason": reason}
        left = self.end()
        if left_s <= limit_s:
            raise OverBudget(f"ended while waiting for {asked.get('mechanism', 'a process')}")
        reason = f"no answer after {time.monotonic() - begun:.0f} s; killed"
        return {"outcome": "timeout", "reason": reason, "notes": left_running(left)}

    def line(self, timeout_s: float) -> bytes:
        """The next line that the process sends; empty if it is not complete in time.

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
        code, left = self.server.ending(self)
        printed = f": {line}" if (line := last_line(self.log)) else ""
        with suppress(OSError):
            self.log.unlink()
        if code == -signal.SIGKILL and oom_kills() > self.kills:
            reason = "the kernel killed the process, as memory ran out"
            return {"outcome": "oom", "reason": reason, "notes": left_running(left)}
        if code is None:
            reason = f"the process ended together with its server{printed}"
            return {"outcome": "crashed", "reason": reason, "lost": True}
        how = f"ended without an answer (exit {code})"
        if code < 0:
            how = f"was killed by signal {-code}"
        reason = f"the process {how}{printed}"
        return {"outcome": "crashed", "reason": reason, "notes": left_running(left)}

    def end(self) -> int:
        """End the process and any it left running; returns how many those were."""
        if self.alive:
            self.pipe.close()
            with suppress(OSError), self.server.lock:
                self.server.kill(self.pid)
                _, left = self.server.ending(self)
                self.log.unlink(missing_ok=True)
                return left
        return 0

    def __exit__(self, *error: object) -> None:
        self.end()


def readable(connection: socket.socket, timeout_s: float) -> bool:
    """Whether data arrives in time; by `poll`, since `select` refuses descriptors above 1,023."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(None if math.isinf(timeout_s) else max(0.0, timeout_s) * 1000))


def left_running(count: int) -> dict[str, str]:
    """The note on processes that a mechanism left running, if there were any."""
    noun = "process" if count == 1 else "processes"
    return {"processes": f"started {count} {noun} that had to be ended"} if count else {}


def last_line(log: Path) -> str:
    """The last line that a process printed."""
    with suppress(OSError), open(log, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_BYTES))
        text = file.read().decode(errors="replace").strip()
        return text.splitlines()[-1] if text else ""
    return ""
