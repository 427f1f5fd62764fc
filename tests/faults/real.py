"""Real sweeps that take seconds, and what tests ask of the journals and processes they leave."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from contextlib import suppress
from pathlib import Path

from attnbench.store import schema
from attnbench.store.journal import FILE

ROOT = Path(__file__).parents[2]
SIZES = ("--tokens", "64", "--width", "16", "--heads", "2", "--quick", "--device", "cpu")
SIZES += ("--budget", "none")  # or a busy machine leaves some of the cases out
SMALL = ("--models", "fastformer", "--lengths", "16,32", "--rounds", "2", *SIZES)
BEGUN = 7  # lines of the journal of `SMALL` before its first run
RUNS = 2 * 2 * (2 + 1)  # lengths, modes; rounds of time, and memory once
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MARK = "ATTNBENCH_TEST"
PATIENCE_S = 1800.0  # a limit for what should have happened long before, never a wait


def command(*arguments):
    return [sys.executable, "-m", "attnbench", *map(str, arguments)]


def environment(**more):
    mark = {MARK: uuid.uuid4().hex}
    return {**os.environ, "NO_COLOR": "1", "PYTHONPATH": str(ROOT), **mark, **more}


class Started(subprocess.Popen):
    """A verb's process; whatever it starts inherits a mark of its environment."""

    def __init__(self, arguments, *, env, **more):
        self.mark = f"{MARK}={env[MARK]}".encode()
        super().__init__(arguments, env=env, **more)


def attnbench(*arguments, before=(), env=None, **more):
    """The verb's process, once it has ended."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **more}
    return subprocess.run(
        [*before, *command(*arguments)],
        env=environment(**(env or {})),
        timeout=PATIENCE_S,
        check=False,
        **pipes,
    )


def start(*arguments, before=(), env=None, **more):
    """A verb's process, the leader of a session."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **more}
    return Started(
        [*before, *command(*arguments)],
        env=environment(**(env or {})),
        start_new_session=True,
        preexec_fn=listening,
        **pipes,
    )


def listening():
    """Heed signals that nohup or a shell's background has the tests ignore."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def until(happened, what):
    """Block until an event that can only be looked for."""
    end = time.monotonic() + PATIENCE_S
    while not (found := happened()):
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.005)
    return found


def lines(folder):
    """How many lines the journal has."""
    try:
        return (folder / FILE).read_bytes().count(b"\n")
    except OSError:
        return 0


def members(started):
    """A verb's process and all that it started, as far as they are alive."""
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
    """The processes that measure."""
    return children(server(started), members(started))


def children(parent, among):
    """Of some processes those that run the server's script and have this parent."""
    found = []
    for pid in among:
        with suppress(OSError):  # it has ended
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            script = b"server.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
            found += [pid] * (script and stat[0] != "Z" and int(stat[1]) == parent)
    return found


def nothing_left(started):
    """Block until nothing that a verb started is alive."""
    until(lambda: not members(started), f"the end of all processes of {started.pid}")


def entries(folder):
    """Every line of a journal, each of which must be whole."""
    *whole, last = (folder / FILE).read_bytes().split(b"\n")
    assert last == b""
    return [schema.unseal(line) for line in whole]


def runs(folder):
    """The runs by case, part and round, none of them written twice."""
    found = [entry.data for entry in entries(folder) if entry.kind == "run"]
    names = Counter((run["case"], run["part"], run["round"]) for run in found)
    assert set(names.values()) <= {1}
    return dict(zip(names, found, strict=True))


def complete(folder):
    """The runs of `SMALL`, all there and well."""
    found = runs(folder)
    assert len(found) == RUNS
    assert {run["outcome"] for run in found.values()} == {"ok"}
    assert entries(folder)[-1].kind == "end"
    return found


def said(done, code, *words):
    """What a verb said that ended with `code`; one line of it holds all the words."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "unforeseen" not in done.stderr
    assert not words or any(all(word in line for word in words) for line in done.stderr.split("\n"))
    if code:
        *_, last = done.stderr.rstrip().split("\n")
        assert last.startswith("attnbench: "), last
        assert done.stderr.count("attnbench: ") == 1
    return done.stderr
