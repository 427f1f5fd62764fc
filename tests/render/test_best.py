"""What is bold in LaTeX: the first of each column, and what the analysis says ties with it."""

import pytest

from attnbench.analysis.report import analyse
from attnbench.render.page import best
from attnbench.render.styles import labels
from attnbench.store.journal import load
from tests.sweeps import sweep


def at(found, name, length):
    return {series for series, heading in found[name].cells if heading == length}


@pytest.mark.parametrize(("restart", "bold"), [(0.5, 3), (0.001, 1)])
def test_ties_are_bold_together_and_a_winner_alone(restart, bold):
    found = best(analyse(sweep(restart=restart, noise=0.001, lengths=(128, 512, 2048))))
    fastest = at(found, "latency_training", "512")
    assert len(fastest) == bold
    assert at(found, "speedup_training", "512") == fastest


def test_what_was_not_measured_is_not_bold_and_the_least_memory_is():
    analysis = analyse(load("reports/cpu-fig2"))
    cases, found = analysis.cases, best(analysis)
    timed = cases[(cases["mode"] == "training") & cases["time_s"].notna()]
    names = labels(cases["series"])
    known = {(names[row["series"]], f"{row['seq_len']:,}") for _, row in timed.iterrows()}
    assert set(found["latency_training"].cells) < known
    assert at(found, "latency_inference", "2,048") == {"Fastformer"}
    assert at(found, "memory_training", "256") == {"Linformer"}
    assert "at most 1.0 % more" in found["memory_training"].note


def test_the_state_of_decoding_has_a_least():
    found = best(analyse(load("reports/cpu-decode")))
    assert at(found, "state_decode", "65,536") == {"RetNet"}
    assert at(found, "latency_decode", "65,536") >= {"RetNet"}


def test_one_round_has_no_fastest_but_a_smallest():
    found = best(analyse(sweep(rounds=1)))
    assert {name.partition("_")[0] for name in found} == {"memory"}
