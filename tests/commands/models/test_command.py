"""What `attnbench models` takes and how it prints one mechanism."""

import re

import pytest
from rich.console import Console

from attnbench.commands import console
from attnbench.commands.models.command import class_in_words, named
from attnbench.errors import UsageError
from attnbench.mechanisms import linformer
from attnbench.mechanisms.catalogue.presets import group
from attnbench.records import Family
from tests.commands.commands import here

OWN = """
from torch import nn

class Mean(nn.Module):
    def __init__(self, width, heads):
        super().__init__()

    def forward(self, x):
        return x
"""


def test_equations_stay_whole_and_work_has_a_unit(monkeypatch):
    monkeypatch.setattr(console, "out", lambda: Console(width=40))
    shown = here("models", "linformer").stdout
    assert linformer.__doc__.rstrip() in shown
    assert "(rank=256)" in shown
    assert re.search(r"\d MFLOP \+ [\d.]+ [MG]FLOP", " ".join(shown.split()))


def test_a_group_or_a_pattern_names_its_members():
    assert named("@modern") == list(group("@modern"))
    assert named("@fig2").count("transformer") == 1, "forms are of one mechanism"
    assert named("synth*") == ["synthesizer"]
    with pytest.raises(UsageError, match=r"no file 'a/b.py'"):
        named("a/b.py")


def test_classes_are_written_out():
    shown = here("models", "bigbird").stdout
    assert "Class      FP+M (fixed patterns, memory); O(N·K·d); causal: never" in shown
    for family in set(Family) - {Family.UNKNOWN}:
        assert class_in_words(family).startswith(f"{family} (")


def test_a_module_of_a_user_has_no_empty_lines(tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    shown = here("models", "mine.py", cwd=tmp_path).stdout
    assert "Module     mine.py:Mean" in shown
    assert "Costs      unknown until it is measured" in shown
    assert shown.rstrip().endswith("Options    none")
    assert "Paper" not in shown
    assert "–" not in shown
