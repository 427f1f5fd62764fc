"""Classes and functions by themselves, as `attnbench.sweep` takes them in a notebook."""

import linecache
import sys
from types import ModuleType

import pytest

from attnbench.errors import UsageError
from attnbench.mechanisms.catalogue.registry import card
from attnbench.running.request.options import read
from tests.running.request import cells

SETUP = "import math\nfrom torch import nn\nimport torch.nn.functional as F\nSHARE = 0.5\n"
HELPER = "def scaled(x):\n    return x * SHARE\n"
LAYER = """
class Base(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.value = nn.Linear(width, width)

class Mean(Base):
    def forward(self, x):
        return x + F.relu(scaled(self.value(x))).mean(1, keepdim=True) / math.pi
"""


@pytest.fixture
def notebook(monkeypatch, tmp_path):
    """Runs cells in a module without a file, whose source only `linecache` has."""
    module = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    monkeypatch.chdir(tmp_path)

    def run(*sources):
        for number, source in enumerate(sources):
            name = f"/nowhere/ipykernel_1/{number}.py"
            monkeypatch.setitem(
                linecache.cache, name, (len(source), None, source.splitlines(True), name)
            )
            exec(compile(source, name, "exec"), vars(module))
        return module

    return run


def test_a_class_from_cells_becomes_a_file_with_all_that_it_uses(notebook):
    made = notebook(SETUP, HELPER, LAYER).Mean
    (name,) = read({"models": [made]})["models"]
    assert name.startswith("reports/cells/")
    assert name.endswith("/Mean.py:Mean")
    assert read({"models": made})["models"] == (name,), "the same source has the same file"
    found = card(name)
    assert found.config() is not None


def test_what_comes_from_a_file_is_named_by_it():
    (name,) = read({"models": [cells.Mean, "fnet"]})["models"][:1]
    assert name.endswith("tests/running/request/cells.py:Mean")


def test_what_has_no_source_is_refused_with_the_way_out(notebook):
    module = notebook(SETUP + "table = [1, 2]\n", "def local(q, k, v):\n    return v * table[0]\n")
    with pytest.raises(UsageError, match=r"'table' is neither .*%%writefile mine.py.*:local'"):
        read({"models": module.local})
    with pytest.raises(UsageError, match="it has no name of its own"):
        read({"models": lambda q, k, v: v})
