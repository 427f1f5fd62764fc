"""Starts the measuring processes of `check`, which compares source trees."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from attnbench.commands import console
from attnbench.commands.check.measuring import Runner
from attnbench.running.pool import Pool
from attnbench.running.session import SCRIPT


@contextmanager
def runner(
    functions: bool = False, trees_only: bool = False, tests: Mapping[str, Any] | None = None
) -> Iterator[Runner]:
    """The `Runner` of a check; `trees_only`: only for mechanisms that the measured trees contain.

    For `functions`, torch is loaded only if they load it; so too for `tests`, which says where and
    how pytest runs them (`measuring.pytest_worker`), and which modules all processes share.
    """
    terminal = console.err()
    about: dict[str, Any] = {"own": trees_only}
    if functions:
        about = {"modules": (), "module": "attnbench.measuring.calls"}
    if tests is not None:
        about = {"module": "attnbench.measuring.pytest_worker", **tests}
    with Pool(SCRIPT, seed=0, **about) as server:
        if not terminal.is_terminal:
            yield Runner(server=server, holds=tests is not None)
            return
        with terminal.status("starting", refresh_per_second=2) as status:
            yield Runner(server=server, observe=status.update, holds=tests is not None)
