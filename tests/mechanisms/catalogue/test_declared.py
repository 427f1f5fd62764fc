"""What files declare, read without running them."""

import re

import pytest

from attnbench.errors import UsageError
from attnbench.mechanisms.catalogue.declared import forms, modules, with_module
from attnbench.mechanisms.catalogue.presets import listed
from attnbench.mechanisms.catalogue.registry import card, names

FILE = """
import elsewhere as at
raise SystemExit("it ran")

class Base:
    def __init__(self, dim, num_heads): ...
    def forward(self, x): ...

class Mean(Base): ...
class _Hidden(Base): ...
class Block(Unknown): ...
class Core:
    def forward(self, q, k, v, mask=None): ...
def local(q, k, v): return v
def helper(x): return x
def made(*, width, heads=4): return Mean(width, heads)
CARD = at.Card(forms={})
"""


def test_forms_are_those_of_the_cards():
    for name in names():
        assert set(forms(name)) == set(card(name).forms), name
        assert forms(name)[0] == next(iter(card(name).forms))
    assert forms("nowhere") == forms("../x") == ()


def test_modules_of_a_file_are_named_and_nothing_of_it_runs(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(FILE)
    assert modules(file) == ("Base", "Mean", "Core", "local", "made", "CARD")


def test_a_file_means_its_one_module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("def local(q, k, v): ...\ndef other(x): ...\n")
    assert with_module("mine.py") == "mine.py:local"
    assert with_module("./mine.py[share=0.5]") == "./mine.py:local[share=0.5]"
    for other in ("mine.py:X", "fnet", "transformer:kern.py:f", "a.py:B[x=1]", "@fig2"):
        assert with_module(other) == other


def test_a_file_of_kernels_means_its_one_function(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/kern.py").write_text("import torch\n\n\ndef f(q, k, v): ...\ndef _g(q): ...\n")
    assert with_module("transformer:sub/kern.py") == "transformer:sub/kern.py:f"
    assert with_module("kimi_delta:sub/kern.py[axes=bnhd]") == "kimi_delta:sub/kern.py:f[axes=bnhd]"
    (tmp_path / "kern.py").write_text("def f(q, k, v): ...\ndef g(q, k, v): ...\n")
    with pytest.raises(UsageError, match=r"several functions: f, g; write one as t:kern.py:f"):
        with_module("t:kern.py")
    with pytest.raises(UsageError, match=r"no file .none\.py."):
        with_module("transformer:none.py")


def test_a_comma_in_a_path_is_named_as_what_divides(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a,b").mkdir()
    (tmp_path / "a,b/mine.py").write_text("def local(q, k, v): ...\n")
    for text in (
        "a,b/mine.py",
        "fnet,a,b/mine.py:local[x=1],fnet",
        "transformer:a,b/mine.py:local",
    ):
        with pytest.raises(UsageError, match=r"--models: 'a,b/mine.py' has a comma in its path"):
            listed(text, "--models")
    with pytest.raises(UsageError, match="unknown mechanism 'nowhere'"):
        listed("nowhere,fnet", "--models")
    assert listed("fnet, linformer", "--models") == ("fnet", "linformer")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (FILE, "has several modules: Base, Mean, Core, local, made, CARD; write one as mine.py:B"),
        ("x = 1", "has no class or function that takes a width .*d_model.* or q, k and v first"),
        ("def (", "cannot read 'mine.py': line 1: invalid syntax"),
        ("\0", "cannot read 'mine.py'"),
        (None, "no file 'mine.py'"),
    ],
)
def test_a_file_that_means_no_one_module_is_refused(text, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / "mine.py").write_text(text)
    with pytest.raises(UsageError) as caught:
        with_module("mine.py")
    assert re.search(said, str(caught.value))
    assert len(str(caught.value).splitlines()) == 1
