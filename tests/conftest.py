"""Shared by all tests: one thread, repeatable properties, and memory that is never zero by luck."""

import gc
import sys
from unittest.mock import patch

import pytest
from hypothesis import settings

from attnbench.devices import host
from tests.forked import forked_servers

settings.register_profile("attnbench", deadline=None, derandomize=True)
settings.load_profile("attnbench")


def pytest_collection_finish():
    settled()


@pytest.fixture(autouse=True, scope="module")
def settled_heap():
    """What the tests of other files have loaded, torch's compiler before all."""
    settled()


def settled():
    """Whatever is there stays: no collection of garbage, of which a case makes two, looks at it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def careful_torch():
    """For tests that load torch; the paper wing never does."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
        torch.utils.deterministic.fill_uninitialized_memory = True
        torch.use_deterministic_algorithms(True)


@pytest.fixture
def afresh():
    """Nothing was compiled before, nor is kept."""
    compiler = sys.modules["torch"].compiler
    compiler.reset()
    yield
    compiler.reset()


@pytest.fixture(autouse=True, scope="session")
def hasty_looks():
    """No test cares which core a sweep takes."""
    with patch.object(host, "LOOK_S", 0.01):
        yield


@pytest.fixture(autouse=True, scope="session")
def own_servers():
    """Torch is imported once for all servers of measuring processes."""
    with forked_servers():
        yield
