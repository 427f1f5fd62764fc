"""How verbs that judge source trees start measuring processes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from attnbench.api.servers import SCRIPT
from attnbench.cli import console
from attnbench.device import find
from attnbench.errors import CannotRun
from attnbench.records import Fingerprint
from attnbench.run.cgroups import cores
from attnbench.run.processes import Server

if TYPE_CHECKING:
    from rich.console import Console

    from attnbench.gate.measuring import Runner


@contextmanager
def runner(device: str, seed: int, own: bool = False) -> Iterator["Runner"]:
    """What a check measures with; `own`: only mechanisms that the measured trees contain."""
    from attnbench.gate.measuring import Runner

    shown = console.err()
    with Server(SCRIPT, own=own, seed=seed) as server, watched(shown) as observe:
        yield Runner(
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
