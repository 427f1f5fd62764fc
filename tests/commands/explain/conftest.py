"""Two mechanisms at each level, for the tests of this verb."""

import pytest

from attnbench.commands.explain.analysis import by_level
from attnbench.records import Level
from tests.commands.explain.made import at


@pytest.fixture(scope="package")
def levels():
    """What was measured at each level."""
    return by_level([at(level) for level in Level])
