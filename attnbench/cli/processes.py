"""The processes that verbs start: to read what mechanisms say of themselves, and to measure."""

from attnbench.run.launch import Launcher

WORKER = "attnbench.measure.worker"
READER = "attnbench.workloads.reader"
# the worker first: it sets variables that torch's libraries read as they load; a child imports
# the program's main module again
SERVER = (WORKER, READER, "attnbench.cli.main")
START_TIMEOUT_S = 300.0  # importing torch on a cold disk


def measuring() -> Launcher:
    """Starts processes that run operations."""
    return Launcher(WORKER, SERVER)


def reading() -> Launcher:
    """Starts processes that read cards."""
    return Launcher(READER, SERVER)
