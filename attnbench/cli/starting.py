"""How verbs start what measures: one server, for this package or for source trees."""

from pathlib import Path
from typing import Any

from attnbench.run.processes import Server

SCRIPT = Path(__file__).parents[1] / "measure" / "server.py"
# loaded once, before workers are forked
SHARED = ("attnbench.measure.worker", "attnbench.workloads.reader")


def own_server(threads: int, seed: int = 0) -> Server:
    """What starts processes that measure this package, and that read cards."""
    return Server(SCRIPT, preload=SHARED, threads=threads, seed=seed)


def tree_server(**about: Any) -> Server:
    """What starts single-threaded processes that measure source trees, each its own package."""
    return Server(SCRIPT, **about)
