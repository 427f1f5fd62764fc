"""Cards of a tree and of this package, the cases that they resolve to, and what is imported."""

import sys

import pytest

from attnbench.measuring.cards import Cards, imported_files
from attnbench.measuring.server import Unmeasured
from attnbench.records import Level, Workload

W = Workload(batch=1, seq_len=16, width=16, heads=4, level=Level.ATTENTION)
MINE = """
from torch import nn


class Mine(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.value = nn.Linear(width, width)

    def forward(self, x):
        return self.value(x)
"""


@pytest.fixture
def cards(tmp_path, monkeypatch):
    """Those of a tree with a module in it."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "mine.py").write_text(MINE)
    return Cards(tmp_path, own_only=True)


def test_a_module_of_the_tree_is_found_by_its_path_there(cards):
    own, _, case = cards.resolve("mine.py:Mine", None, (), W)
    assert not own.declared
    assert (case.mechanism, case.form) == ("mine.py:Mine", own.default_form(own.config(), W))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("other.py:Mine", "there is no file other.py"),
        ("mine.py:Other", "mine.py has no Other"),
        ("linfromer", "there is no mechanism 'linfromer'"),
        ("linformer", "linformer comes from .*linformer.py, which is not in this repository"),
    ],
)
def test_what_a_tree_lacks_is_missing(cards, name, said):
    with pytest.raises(Unmeasured, match=said) as raised:
        cards.find(name)
    assert raised.value.outcome == "missing"


def test_a_tree_may_be_measured_by_the_mechanisms_of_an_installed_package(tmp_path):
    assert Cards(tmp_path, own_only=False).find("linformer").family


@pytest.mark.parametrize(
    ("name", "form", "changes", "outcome", "said"),
    [
        ("transformer", "fast", {}, "missing", "has no form 'fast'; forms: eager, "),
        ("fnet", None, {"causal": True}, "unsupported", "no causal form"),
    ],
)
def test_a_case_that_cannot_be_measured_says_why(name, form, changes, outcome, said):
    w = Workload(**{**vars(W), **changes})
    with pytest.raises(Unmeasured, match=said) as raised:
        Cards(None, own_only=False).resolve(name, form, (), w)
    assert raised.value.outcome == outcome


@pytest.mark.parametrize(("name", "causal"), [("transformer", False), ("retention", True)])
def test_what_is_always_causal_is_measured_so(name, causal):
    _, _, case = Cards(None, own_only=False).resolve(name, None, (), W)
    assert case.workload.causal is causal


def test_imports_of_a_file_are_read_without_running_it(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    package = tmp_path / "pack"
    package.mkdir()
    for name in ("__init__", "near", "far", "late"):
        (package / f"{name}.py").touch()
    (tmp_path / "beside.py").touch()
    (package / "it.py").write_text(
        "raise SystemExit\nimport beside, numpy\nfrom . import near\nfrom pack.far import x\n"
        "def f():\n    from .late import y\n"
    )
    found = {*imported_files(package / "it.py", tmp_path)}
    expected = {package / f"{name}.py" for name in ("__init__", "near", "far", "late")}
    assert found == {*map(str, expected), str(tmp_path / "beside.py")}
    (package / "it.py").write_text("import beside\nthis is no code\n")
    assert [*imported_files(package / "it.py", tmp_path)] == []
