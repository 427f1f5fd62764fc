"""Starts the measuring processes of verbs that compare source trees."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from attnbench.api.servers import SCRIPT
from attnbench.cli import console
from attnbench.gate.measuring import Runner
from attnbench.run.pool import Pool


@contextmanager
def runner(seed: int, **about: Any) -> Iterator[Runner]:
    """The `Runner` of a check; `own`: only for mechanisms that the measured trees contain."""
    with Pool(SCRIPT, seed=seed, **about) as server, show_progress() as (observe, announce):
        yield Runner(server=server, observe=observe, announce=announce)


def function_runner(seed: int) -> AbstractContextManager[Runner]:
    """The `Runner` for functions; torch is loaded only if they load it."""
    return runner(seed, imports=(), module="attnbench.measure.calls")


@contextmanager
def show_progress() -> Iterator[tuple[Callable[[str], None], Callable[[str], None]]]:
    """Show a status on a terminal, with printed lines above it; a log gets only the lines."""
    shown = console.err()
    if not shown.is_terminal:
        yield lambda text: None, shown.print
        return
    with shown.status("starting", refresh_per_second=2) as status:
        yield status.update, shown.print
