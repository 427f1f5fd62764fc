"""The allocator of the process that runs the tests stays as it is."""

import pytest

from attnbench.measure import allocator


@pytest.fixture(autouse=True)
def usual_allocator(monkeypatch):
    """A worker in this process would keep freed pages, which a test of resident memory sees."""
    monkeypatch.setattr(allocator, "mallopt", lambda parameter, value: None)
    monkeypatch.setattr(allocator, "huge_pages", lambda *, allowed: None)
