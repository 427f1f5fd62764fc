"""How long the process that reads cards may take."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from attnbench.errors import CannotRun
from attnbench.workloads import reading


class Slow:
    """A server whose workers need some seconds for an answer."""

    def __init__(self, takes_s):
        self.takes_s = takes_s

    @contextmanager
    def worker(self, **about):
        def ask(limit_s, **asked):
            return {"outcome": "ok" if self.takes_s <= limit_s else "timeout"}

        yield SimpleNamespace(ask=ask)


def test_on_a_busy_machine_the_package_own_cards_may_take_minutes():
    assert reading.ask(Slow(300.0), ("fastformer", "transformer"), do="describe")
    with pytest.raises(CannotRun, match=r"within 600 s; the machine may be too busy"):
        reading.ask(Slow(900.0), ("fastformer", "transformer"), do="describe")


def test_a_users_file_may_not():
    with pytest.raises(CannotRun, match=r"'mine.py:CARD' could not be read within 30 s; neither"):
        reading.ask(Slow(300.0), ("mine.py:CARD",), do="describe")
