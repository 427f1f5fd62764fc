"""The server of the processes that measure this package."""

from pathlib import Path

from attnbench.run.processes import Server

SCRIPT = Path(__file__).parents[1] / "measure" / "server.py"
# loaded once, before workers are forked; what measures memory before any mechanism can replace it
SHARED = ("attnbench.measure.worker", "attnbench.devices.memory", "attnbench.workloads.reader")


def own_server(threads: int, seed: int = 0) -> Server:
    """The server of processes that measure this package, and that read cards."""
    return Server(SCRIPT, preload=SHARED, threads=threads, seed=seed)
