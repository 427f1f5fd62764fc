"""Starts the measuring processes of verbs that compare source trees."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from attnbench.api.measuring import SCRIPT
from attnbench.cli import console
from attnbench.gate.measuring import Runner
from attnbench.run.pool import Pool


@contextmanager
def runner(functions: bool = False, own: bool = False) -> Iterator[Runner]:
    """The `Runner` of a check; `own`: only for mechanisms that the measured trees contain.

    For `functions`, torch is loaded only if they load it.
    """
    shown = console.err()
    calls: dict[str, Any] = {"modules": (), "module": "attnbench.measure.calls"}
    with Pool(SCRIPT, seed=0, **(calls if functions else {"own": own})) as server:
        if not shown.is_terminal:
            yield Runner(server=server)
            return
        with shown.status("starting", refresh_per_second=2) as status:
            yield Runner(server=server, observe=status.update)
