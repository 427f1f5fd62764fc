"""What `attnbench models` takes and how it prints one mechanism."""

import pytest
from rich.console import Console

from attnbench.cli import console
from attnbench.cli.models import named, show_one
from attnbench.errors import UsageError
from attnbench.workloads.presets import group

EQUATION = f"o = A v {'and so on' * 8} [B, H, N, d]"
ROW = {
    "name": "mine",
    "equations": f"Mine: an idea.\n\n    {EQUATION}\n",
    "paper": {"title": "T", "authors": "A", "year": 2021, "source": "S"},
    "class": "M",
    "complexity": "O(N·m)",
    "symbols": {"m": ("landmarks", "landmarks")},
    "causal": "never",
    "decode": {"eager": "no causal form"},
    "declared": True,
    "parameters": 4,
    "forms": {"eager": "runs"},
    "default": "eager",
    "packages": {},
    "flops": {"eager": {"projections": 373_293_056, "core": 1_677_721_600}},
    "options": {"landmarks": 64},
    "options_mean": "None.",
}


def test_equations_stay_whole_and_work_has_a_unit(capsys, monkeypatch):
    monkeypatch.setattr(console, "out", lambda: Console(width=80))
    show_one(ROW)
    shown = capsys.readouterr().out
    assert f"    {EQUATION}\n" in shown
    assert "Symbols    N: sequence length; m: landmarks (landmarks=64)\n" in shown
    assert "373 MFLOP + 1.68 GFLOP" in " ".join(shown.split())


def test_a_group_or_a_pattern_names_its_members():
    assert named("@modern") == list(group("@modern"))
    assert named("@fig2").count("transformer") == 1, "forms are of one mechanism"
    assert named("synth*") == ["synthesizer"]
    with pytest.raises(UsageError, match=r"'a/b.py' names a file alone; write a/b.py:NAME"):
        named("a/b.py")
