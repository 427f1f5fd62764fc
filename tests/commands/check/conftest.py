"""One process with torch for all tests of the gate; every tree's processes are forked from it."""

import pytest

from attnbench.running.pool import Pool
from attnbench.running.session import SCRIPT


@pytest.fixture(scope="session")
def server():
    with Pool(SCRIPT, own=True, seed=0) as running:
        running.wait()
        yield running
