"""The command line, run as a separate process, or in this one where only the output matters."""

import io
import os
import signal
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from unittest.mock import patch

from attnbench.cli.main import run
from attnbench.devices.kinds.cpu import Cpu


def environment(**more):
    """This environment without what a CI service says of itself."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GITHUB_")}
    return {**kept, "NO_COLOR": "1", **more}


def attnbench(*arguments, cwd=None, **env):
    """A process; its exit code, output and errors."""
    return subprocess.run(
        [sys.executable, "-m", "attnbench", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment(**env),
        check=False,
    )


def start(*arguments, cwd=None):
    """A process that has not ended yet; its output can be read line by line."""
    return subprocess.Popen(
        [sys.executable, "-m", "attnbench", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=environment(),
        preexec_fn=listening if sys.platform != "win32" else None,
    )


def listening():
    """Heed signals that nohup or a shell's background has the tests ignore."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def soon(device, quick, bounded):
    """How a sweep samples where nobody reads its times: hardly at all."""
    return {"sample_s": 0.01, "warmup_s": 0.004, "memory_limit_bytes": device.memory_bytes()}


def here(*arguments, cwd=".", **env):
    """The same without a process, which saves seconds of imports, and with few samples."""
    command, out, err = ["attnbench", *map(str, arguments)], io.StringIO(), io.StringIO()
    with (
        chdir(cwd),
        patch.object(sys, "argv", command),
        patch.object(Cpu, "sampling", soon),
        patch.dict(os.environ, environment(**env), clear=True),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        code = run()
    assert "unexpected" not in err.getvalue(), err.getvalue()
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())
