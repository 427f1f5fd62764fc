"""`explain`: a difference in parts, from the command line."""

import json

import pytest

from attnbench.api import explaining
from tests.cli.commands import here, refused

SMALL = ("--length", 16, "--width", 16, "--heads", 2, "--layers", 1)


@pytest.fixture
def few_rounds(monkeypatch):
    monkeypatch.setattr(explaining, "LEAST", 1)
    monkeypatch.setattr(explaining, "MOST", 2)


def test_the_parts_are_printed_within_80_columns_and_written(few_rounds, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    pair = ("gated_delta_net", "transformer")
    done = here("explain", *pair, *SMALL, "--out", tmp_path / "why", "--formats", "png,svg")
    for said in ("gated_delta_net:chunked takes", "projections", "core", "rest", "Crossover", "█"):
        assert said in done.stdout
    files = sorted(path.name for path in (tmp_path / "why").iterdir())
    assert files == ["explain.json", "explain.md", "explain.png", "explain.svg"]
    data = json.loads((tmp_path / "why" / "explain.json").read_text())
    assert len(data["rounds"]) == 2
    *parts, whole = data["parts"]
    for column in ("a_s", "b_s", "more_s"):
        assert sum(row[column] for row in parts) == pytest.approx(whole[column])


def test_training_has_a_step_of_the_optimiser(few_rounds):
    done = here("explain", "fnet", "local", *SMALL, "--mode", "training", "--json")
    data = json.loads(done.stdout)
    assert "optimiser" in [row["part"] for row in data["parts"]]
    assert any("cannot be told apart in fnet" in text for text in data["text"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("fnet", "local", "--length", 0), "not between 1 and"),
        (("fnet", "local", "--length", "x"), "not a size"),
        (("fnet", "local"), "--length"),
        (("fnet", "--length", 16), "B"),
        (("fnet", "lokal", "--length", 16), "did you mean"),
        (("fnet", "@fig2", "--length", 16), "several mechanisms"),
        (("fnet", "transformer:*", "--length", 16), "two different forms"),
        (("fnet", "fnet", "--length", 16), "two different forms"),
        (("fnet", "local", "--length", 16, "--mode", "both"), "one mode"),
        (("fnet", "local", "--length", 16, "--width", "16,32"), "one mode, width"),
        (("fnet", "local", "--length", 16, "--level", "core"), "no parts"),
        (("fnet", "local", "--length", 16, "--formats", "svg"), "--out"),
        (("fnet", "local", "--length", 16, "--quick"), "--quick"),
        (("fnet", "local", "--length", 16, "--causal"), "fnet"),
    ],
)
def test_what_cannot_be_explained_is_refused_in_one_line(arguments, said):
    assert said in refused("explain", *arguments)
