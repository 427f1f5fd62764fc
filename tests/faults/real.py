"""Real sweeps of a few seconds, and access to the journals and processes that they leave."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from contextlib import suppress
from pathlib import Path

from attnbench.records.storage import schema
from attnbench.records.storage.journal import FILE

ROOT = Path(__file__).parents[2]
SIZES = ("--tokens", "64", "--width", "16", "--heads", "2", "--quick", "--device", "cpu")
SIZES += ("--budget", "none")  # otherwise a busy machine would skip some cases
SMALL = ("--models", "fastformer", "--lengths", "16,32", "--rounds", "2", *SIZES)
BEGUN = 7  # lines in the journal of `SMALL` before its first run
RUNS = 2 * 2 * (2 + 1)  # lengths × modes × (rounds of time and one of memory)
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MARK = "ATTNBENCH_TEST"
PATIENCE_S = 1800.0  # a limit for events that should happen much earlier, never a wait


def command(*arguments):
    return [sys.executable, "-m", "attnbench", *map(str, arguments)]


def environment(**more):
    mark = {MARK: uuid.uuid4().hex}
    return {**os.environ, "NO_COLOR": "1", "PYTHONPATH": str(ROOT), **mark, **more}


class Started(subprocess.Popen):
    """A verb's process; all that it starts inherits a mark in the environment."""

    def __init__(self, arguments, *, env, **more):
        self.mark = f"{MARK}={env[MARK]}".encode()
        super().__init__(arguments, env=env, **more)


def attnbench(*arguments, before=(), env=None, **more):
    """The completed process of a verb."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **more}
    return subprocess.run(
        [*before, *command(*arguments)],
        env=environment(**(env or {})),
        timeout=PATIENCE_S,
        check=False,
        **pipes,
    )


def start(*arguments, before=(), env=None, **more):
    """A running verb, the leader of a new session."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **more}
    return Started(
        [*before, *command(*arguments)],
        env=environment(**(env or {})),
        start_new_session=True,
        preexec_fn=listening,
        **pipes,
    )


def listening():
    """Restores signals that the tests ignore under nohup or in a shell's background."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def until(happened, what):
    """Blocks until an event that can only be polled for."""
    end = time.monotonic() + PATIENCE_S
    while not (found := happened()):
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.005)
    return found


def lines(folder):
    """Number of lines in the journal."""
    try:
        return (folder / FILE).read_bytes().count(b"\n")
    except OSError:
        return 0


def members(started):
    """The live processes among a verb's process and all that it started."""
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # a dead process has an empty one
            if started.mark in environ.read_bytes().split(b"\0"):
                found.append(int(environ.parent.name))
    return sorted(found)


def server(started):
    """The process that forks workers, or None."""
    return next(iter(children(started.pid, members(started))), None)


def workers(started):
    """The processes that run measurements."""
    return children(server(started), members(started))


def children(parent, among):
    """Those of some processes that run the server's script and have this parent."""
    found = []
    for pid in among:
        with suppress(OSError):  # it has ended
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            script = b"server.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
            found += [pid] * (script and stat[0] != "Z" and int(stat[1]) == parent)
    return found


def nothing_left(started):
    """Blocks until all processes that a verb started have ended."""
    until(lambda: not members(started), f"the end of all processes of {started.pid}")


def entries(folder):
    """All lines of a journal, which must be intact."""
    *whole, last = (folder / FILE).read_bytes().split(b"\n")
    assert last == b""
    return [schema.unseal(line) for line in whole]


def runs(folder):
    """The runs by case, part and round, none of them recorded twice."""
    found = [entry.data for entry in entries(folder) if entry.kind == "run"]
    names = Counter((run["case"], run["part"], run["round"]) for run in found)
    assert set(names.values()) <= {1}
    return dict(zip(names, found, strict=True))


def complete(folder):
    """The runs of `SMALL`, which must be complete and successful."""
    found = runs(folder)
    assert len(found) == RUNS
    assert {run["outcome"] for run in found.values()} == {"ok"}
    assert entries(folder)[-1].kind == "end"
    return found


def said(done, code, *words):
    """The error output of a verb that ended with `code`; one line contains all `words`."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "unexpected" not in done.stderr
    assert not words or any(all(word in line for word in words) for line in done.stderr.split("\n"))
    if code:
        *_, last = done.stderr.rstrip().split("\n")
        assert last.startswith("attnbench: "), last
        assert done.stderr.count("attnbench: ") == 1
    return done.stderr
