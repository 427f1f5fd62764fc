"""The command line, run as a separate process, or in this one where only the output matters."""

import io
import os
import re
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from unittest.mock import patch

from attnbench.commands.main import run
from attnbench.devices.kinds.cpu import Cpu

PROGRESS = re.compile(r"\d[\w .]*s? · ")  # `21 s · 1 step · …`


def environment(**more):
    """This environment without what a CI service says of itself."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GITHUB_")}
    return {**kept, "NO_COLOR": "1", **more}


def python(*arguments, code=0, **how):
    """The output and errors of a Python process, which must end with this exit code."""
    how = {"env": environment(), "capture_output": True, "text": True, "check": False} | how
    done = subprocess.run([sys.executable, *map(str, arguments)], **how)
    assert done.returncode == code, done.stderr
    return done


def attnbench(*arguments, **how):
    """The same of the command line."""
    return python("-m", "attnbench", *arguments, **how)


def refused(*arguments, **how):
    """The error of bad usage: one line, at the end, and nothing on standard output.

    Before it only a heading, warnings, and on a slow machine lines of progress.
    """
    done = here(*arguments, code=2, **how)
    *before, last = done.stderr.splitlines()
    assert last.startswith("attnbench: ")
    others = [line for line in before if not line.startswith(("attnbench 0", "warning: "))]
    assert all(PROGRESS.match(line) for line in others), before
    assert not done.stdout
    return last


def soon(device, quick, bounded):
    """How a sweep samples where nobody reads its times: hardly at all."""
    return {"sample_s": 0.01, "warmup_s": 0.004, "memory_limit_bytes": device.memory_bytes()}


def here(*arguments, code=0, cwd=".", unexpected=False, **env):
    """The same without a process, which saves seconds of imports, and with few samples.

    With `code=None` it may end with any exit code. Errors that nobody foresaw fail, unless
    they are what is tested.
    """
    command, out, err = ["attnbench", *map(str, arguments)], io.StringIO(), io.StringIO()
    with (
        chdir(cwd),
        patch.object(sys, "argv", command),
        patch.object(Cpu, "sampling", soon),
        patch.dict(os.environ, environment(**env), clear=True),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        ended = run()
    assert code in (None, ended), err.getvalue()
    assert unexpected == ("attnbench: unexpected" in err.getvalue()), err.getvalue()
    return subprocess.CompletedProcess(command, ended, out.getvalue(), err.getvalue())
