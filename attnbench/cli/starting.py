"""How verbs start measuring processes: one server, for this package or for source trees."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from attnbench.cli import console
from attnbench.device import find
from attnbench.errors import CannotRun
from attnbench.records import Fingerprint
from attnbench.run.cgroups import cores
from attnbench.run.processes import Server

if TYPE_CHECKING:
    from rich.console import Console

    from attnbench.gate.measuring import Bench

SCRIPT = Path(__file__).parents[1] / "measure" / "server.py"
# loaded once, before workers are forked
SHARED = ("attnbench.measure.worker", "attnbench.workloads.reader")


def own_server(threads: int, seed: int = 0) -> Server:
    """The server of processes that measure this package, and that read cards."""
    return Server(SCRIPT, preload=SHARED, threads=threads, seed=seed)


@contextmanager
def bench(device: str, seed: int, own: bool = False) -> Iterator["Bench"]:
    """What a check measures with; `own`: only mechanisms that the measured trees contain."""
    from attnbench.gate.measuring import Bench

    shown = console.err()
    with Server(SCRIPT, own=own, seed=seed) as server, watched(shown) as observe:
        yield Bench(
            server=server,
            machine=partial(fingerprint, server, device),
            observe=observe,
            announce=shown.print,
        )


def fingerprint(server: Server, device: str) -> Fingerprint:
    """What times depend on in this machine. Raises `CannotRun`."""
    from attnbench.measure import environment

    with server.worker() as worker:
        started = worker.started
    if started["outcome"] != "ok":
        raise CannotRun(f"no worker process could be started: {started['reason']}")
    return Fingerprint(
        processor=environment.processor(),
        cores=cores(),
        threads=server.threads,
        torch=started["torch"],
        device=find(device).title(),
    )


@contextmanager
def watched(shown: "Console") -> Iterator[Callable[[str], None]]:
    """Show on a terminal what is being done; print nothing to a log."""
    if not shown.is_terminal:
        yield lambda text: None
        return
    with shown.status("starting", refresh_per_second=2) as status:
        yield status.update
