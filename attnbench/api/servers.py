"""The server of the processes that measure this package."""

from pathlib import Path

from attnbench.run.pool import Pool

SCRIPT = Path(__file__).parents[1] / "measure" / "server.py"
# loaded once, before workers fork: no mechanism can then replace the code that measures memory
SHARED = ("attnbench.measure.worker", "attnbench.devices.memory", "attnbench.workloads.reader")


def reading_server() -> Pool:
    """The server of processes that only read cards; it starts in half the time."""
    return Pool(SCRIPT, preload=("attnbench.workloads.reader",), imports=("torch",))


def own_server(threads: int, seed: int = 0) -> Pool:
    """The server of processes that measure this package, and that read cards."""
    return Pool(SCRIPT, preload=SHARED, threads=threads, seed=seed)
