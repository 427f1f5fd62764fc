"""What `attnbench models` takes and how it prints one mechanism."""

import re

import pytest
from rich.console import Console

from attnbench.cli import console
from attnbench.cli.models import named
from attnbench.errors import UsageError
from attnbench.mechanisms import linformer
from attnbench.workloads.presets import group
from tests.cli.commands import here


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
