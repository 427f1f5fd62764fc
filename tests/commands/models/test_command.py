"""What `attnbench models` takes and how it prints one mechanism."""

import io
import json
import re

import pytest
from rich.console import Console

from attnbench.commands import console
from attnbench.commands.models.command import class_in_words, named, show_one
from attnbench.errors import UsageError
from attnbench.mechanisms import linformer
from attnbench.mechanisms.catalogue.presets import GROUPS, group
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


@pytest.mark.parametrize(
    "pattern", ["transformer:nosuch", "transformer:sdpa", "linformer[rank=3]", "mine.py:A[share=1]"]
)
def test_a_form_or_options_are_refused_as_nothing_is_shown_of_them(pattern):
    with pytest.raises(UsageError, match=r"has a form or options; .*: write \w+"):
        named(pattern)


def test_the_list_names_the_groups():
    text = " ".join(here("models").stdout.split())
    assert all(f"{name}," in text or f"{name}." in text for name in GROUPS)


def test_a_parameter_without_a_default_is_named(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(OWN.replace("width, heads", "width, heads, window"))
    done = here("models", file, code=2)
    assert "takes window without a default; give it one, or write a factory" in done.stderr


def test_a_module_whose_sizes_the_first_pass_tells_is_checked(tmp_path):
    file = tmp_path / "mine.py"
    lazy = OWN.replace("super().__init__()", "super().__init__(); self.map = nn.LazyLinear(width)")
    file.write_text(lazy.replace("return x", "return self.map(x)"))
    done = here("models", file, "--verify")
    assert "0 of " in done.stdout


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


@pytest.mark.parametrize("name", ["feed_forward", "stack(2*transformer+fastformer)"])
def test_what_is_in_no_class_of_the_survey_has_none(name):
    line = here("models", name).stdout.partition("Class")[2].partition("\n")[0]
    assert "causal: " in line
    assert "–" not in line


def test_a_mode_that_a_form_refuses_is_told_beside_it(monkeypatch):
    """Of a kernel that computes no gradients on a CPU, where it is compiled at all."""
    form = {"flex": "runs"}
    row = json.loads(here("models", "transformer", "--json").stdout)
    row |= {"forms": form, "refused": {"flex in training": "no backward pass"}, "packages": {}}
    screen = Console(width=200, file=io.StringIO())
    monkeypatch.setattr(console, "out", lambda: screen)
    show_one(row)
    assert "flex  runs; not in training: no backward pass" in screen.file.getvalue()


def test_a_module_of_a_user_has_no_empty_lines(tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    shown = here("models", "mine.py", cwd=tmp_path).stdout
    assert "Module     mine.py:Mean" in shown
    assert "Costs      unknown until it is measured" in shown
    assert shown.rstrip().endswith("Options    none")
    assert "Paper" not in shown
    assert "–" not in shown


def test_models_lists_what_runs_here_and_shows_one_in_full():
    done = here("models", "*former")
    assert "fastformer" in done.stdout
    assert "xformers" not in done.stdout, "it does not run here"
    assert "xformers" in here("models", "transformer").stdout
    done = here("models", "fastformer")
    for words in (
        "softmax_i(w_qᵀ q_i / √d)",
        "arXiv:2108.09084",
        "interaction = product",
        "folded",
    ):
        assert words in done.stdout
    assert json.loads(here("models", "fastformer", "--json").stdout)["class"] == "M"
