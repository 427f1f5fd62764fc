"""What is bold in LaTeX: the first of each column, and what the analysis says ties with it."""

from attnbench.analysis.report import analyse
from attnbench.render.page import best
from attnbench.store.journal import load
from tests.sweeps import sweep


def at(found, name, length):
    return {series for series, heading in found[name].cells if heading == length}


def test_ties_are_bold_together_and_a_winner_alone():
    found = best(analyse(load("reports/cpu-fig2")))
    tied = {"fastformer", "linformer[rank=16]"}
    assert at(found, "latency_training", "512") == at(found, "speedup_training", "512") == tied
    assert at(found, "latency_inference", "2,048") == {"fastformer"}
    assert at(found, "memory_training", "256") == {"linformer[rank=16]"}
    assert not at(found, "latency_training", "65,536")
    assert "at most 1.0 % more" in found["memory_training"].note


def test_the_state_of_decoding_has_a_least():
    found = best(analyse(load("reports/cpu-decode")))
    assert at(found, "state", "65,536") == {"retention:chunked"}
    assert at(found, "latency_decode", "65,536") >= {"retention:chunked"}


def test_one_round_has_no_fastest_but_a_smallest():
    found = best(analyse(sweep(rounds=1)))
    assert {name.partition("_")[0] for name in found} == {"memory"}
