"""Servers that start at once, for the tests of this wing."""

import pytest

from tests.doubles.servers import light_server


@pytest.fixture
def light(tmp_path, monkeypatch):
    """A server whose workers run what they are asked."""
    with light_server(tmp_path / "modules", monkeypatch) as server:
        yield server
