"""How verbs that judge source trees start measuring processes."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from attnbench.api.servers import SCRIPT
from attnbench.cli import console
from attnbench.devices import host
from attnbench.devices.cgroups import cores
from attnbench.devices.finding import find
from attnbench.errors import CannotRun
from attnbench.gate.measuring import Runner
from attnbench.records import Fingerprint
from attnbench.run.processes import Server


@contextmanager
def runner(device: str, seed: int, **about: Any) -> Iterator[Runner]:
    """What a check measures with; `own`: only mechanisms that the measured trees contain."""
    with Server(SCRIPT, seed=seed, **about) as server, watched() as (observe, announce):
        yield Runner(
            server=server,
            machine=partial(fingerprint, server, device),
            observe=observe,
            announce=announce,
        )


def calling(seed: int) -> AbstractContextManager[Runner]:
    """What functions are measured with; torch is loaded only if they do."""
    return runner("cpu", seed, imports=(), module="attnbench.measure.calls")


def fingerprint(server: Server, device: str) -> Fingerprint:
    """What times depend on in this machine. Raises `CannotRun`."""
    with server.worker() as worker:
        started = worker.started
    if started["outcome"] != "ok":
        raise CannotRun(f"no worker process could be started: {started['reason']}")
    return Fingerprint(
        processor=host.processor(),
        cores=cores(),
        threads=server.threads,
        torch=started["torch"],
        device=find(device).title(),
    )


@contextmanager
def watched() -> Iterator[tuple[Callable[[str], None], Callable[[str], None]]]:
    """Show on a terminal what is being done, above which lines are printed; only these to a log."""
    shown = console.err()
    if not shown.is_terminal:
        yield lambda text: None, shown.print
        return
    with shown.status("starting", refresh_per_second=2) as status:
        yield status.update, shown.print
