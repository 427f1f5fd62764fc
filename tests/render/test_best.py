"""What is bold: the first of each column, and what the analysis says ties with it."""

import pytest

from attnbench.analysis.report import analyse
from attnbench.render.page import report_tables
from attnbench.store.journal import load
from tests.sweeps import sweep


def best(whole):
    """The bold series by the names of the tables and the headings of the columns."""
    return {
        (table.name, heading): {row[0].text for row in table.rows if row[i].best}
        for table in report_tables(analyse(whole))
        for i, heading in enumerate(table.columns)
    }


@pytest.mark.parametrize(("restart", "bold"), [(0.5, 3), (0.001, 1)])
def test_ties_are_bold_together_and_a_winner_alone(restart, bold):
    found = best(sweep(restart=restart, noise=0.001, lengths=(128, 512, 2048)))
    assert len(found["latency_training", "512"]) == bold


def test_the_least_of_each_cost_is_bold():
    found = best(load("reports/cpu-fig2"))
    assert found["latency_inference", "2,048"] == {"fastformer"}
    assert found["memory_training", "256"] == {"linformer[rank=16]"}
    found = best(load("reports/cpu-decode"))
    assert found["state_decode", "65,536"] == {"retention:chunked"}
    assert found["latency_decode", "65,536"] >= {"retention:chunked"}


def test_one_round_has_no_fastest_but_a_smallest():
    found = best(sweep(rounds=1))
    assert {name.partition("_")[0] for (name, _), series in found.items() if series} == {"memory"}
