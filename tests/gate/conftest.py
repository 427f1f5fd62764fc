"""One process with torch for all tests of the gate; every tree's processes are forked from it."""

import pytest

from attnbench.cli.starting import tree_server


@pytest.fixture(scope="session")
def server():
    with tree_server(own=True, seed=0) as running:
        running.wait()
        yield running
