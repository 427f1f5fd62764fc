"""One process with torch for all tests of the gate; every side is forked from it."""

import pytest

from attnbench.cli import checking
from attnbench.run.sides import Sides


@pytest.fixture(scope="session")
def sides():
    with Sides(checking.SIDE, own=True) as running:
        running.wait()
        yield running
