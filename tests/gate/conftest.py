"""One process with torch for all tests of the gate; every tree's processes are forked from it."""

import pytest

from attnbench.api.servers import SCRIPT
from attnbench.run.processes import ServerHandle


@pytest.fixture(scope="session")
def server():
    with ServerHandle(SCRIPT, own=True, seed=0) as running:
        running.wait()
        yield running
