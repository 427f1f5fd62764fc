"""A command that builds what git ignores, run in both trees before anything is measured.

Each side has a virtual environment of its own that also sees what the present one has. What the
command installs goes there, so that `pip install -e .` in one tree changes neither the other side
nor the environment from which the check was called.
"""

import os
import signal
import subprocess
import sysconfig
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from attnbench.commands.check.cases import BASE, HEAD, Trees
from attnbench.errors import CannotRun, UsageError
from attnbench.records import storage
from attnbench.running.pool import HOOK_VARIABLES
from attnbench.running.process import LONGEST_S

LINES = 5  # of the output of a command that failed

# read after all others of the folder, so that what was installed for a side alone comes first
LINK = "zzz_attnbench.pth"
PIP = '#!/bin/sh\nexec "{python}" -m pip "$@"\n'


def prepare_command(text: str | None, name: str) -> str:
    """The command that the option of this name has; empty if there is none. Raises `UsageError`."""
    if text is not None and (not text.strip() or "\0" in text):
        raise UsageError(f"{name} {text!r} is no command; leave it out, or try 'pip install -e .'")
    return text or ""


@contextmanager
def prepare(
    command: str,
    trees: Trees,
    left_s: Callable[[], float],
    observe: Callable[[str], None],
) -> Iterator[dict[Path, str]]:
    """Run the command in both trees.

    Yields the folder of packages that were installed for each tree. Raises `CannotRun` with the
    last lines of the output.

    command: for the shell.
    trees: of both sides.
    left_s: returns how long it may take [s].
    observe: called with what is going on, in words.
    """
    with storage.TemporaryFolder() as scratch:
        sites = dict[Path, str]()
        for side in (BASE, HEAD):
            environment = scratch / side
            sites[trees[side]] = make_environment(environment)
            observe(f"preparing {side}: {command}")
            log = scratch / f"{side}.log"
            code = run(command, trees[side], variables(environment, side, trees), log, left_s())
            if code is None:
                reason = f"took longer than --budget allows in {side}'s tree; raise it"
                raise CannotRun(f"--prepare {command!r} {reason}{last_lines(log)}")
            if code:
                reason = f"ended with exit code {code} in {side}'s tree"
                raise CannotRun(f"--prepare {command!r} {reason}{last_lines(log)}")
        yield sites


def make_environment(folder: Path) -> str:
    """Make a virtual environment that sees the packages of this one; returns where its own go."""
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    names = {"base": str(folder), "platbase": str(folder)}
    site = Path(sysconfig.get_path("purelib", "venv", vars=names))
    ours = dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))
    lines = [f"import site; site.addsitedir({path!r})" for path in ours]
    (site / LINK).write_text("\n".join([*lines, ""]))
    for name in ("pip", "pip3"):
        script = folder / "bin" / name
        script.write_text(PIP.format(python=folder / "bin" / "python"))
        script.chmod(0o755)
    return str(site)


def variables(environment: Path, side: str, trees: Trees) -> dict[str, str]:
    """The environment variables of the command on a side."""
    inherited = {name: value for name, value in os.environ.items() if name not in HOOK_VARIABLES}
    places = [
        str(trees[side] / Path(place).relative_to(trees[HEAD]))
        if Path(place).is_relative_to(trees[HEAD])
        else place
        for place in os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if place
    ]
    path = os.pathsep.join([str(environment / "bin"), os.environ.get("PATH", os.defpath)])
    changed = {
        "PATH": path,
        "VIRTUAL_ENV": str(environment),
        "PYTHONPATH": os.pathsep.join(places),
    }
    inherited.pop("PYTHONHOME", None)
    return {**inherited, **changed}


def run(
    command: str, tree: Path, variables: dict[str, str], log: Path, limit_s: float
) -> int | None:
    """The exit code of a command of the shell; None if it took too long.

    command: for the shell.
    tree: where it runs.
    variables: its environment.
    log: the file of its output.
    limit_s: when it is ended.
    """
    with open(log, "wb") as output:
        process = subprocess.Popen(  # noqa: S602 (a command of the user, who asks for it)
            command,
            shell=True,
            cwd=tree,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        return process.wait(limit_s if limit_s < LONGEST_S else None)
    except subprocess.TimeoutExpired:
        return None
    finally:
        # what it left running would disturb what is timed
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def last_lines(log: Path) -> str:
    """The last lines of the output, to end an error message."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    return "".join(f" | {line}" for line in list(filter(None, lines))[-LINES:])
