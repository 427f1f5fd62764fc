"""A report, whatever is known of each case."""

from dataclasses import replace

from attnbench.analysis.report import analyse
from attnbench.records import UNDECLARED, Part
from attnbench.render import page
from tests.sweeps import sweep


def undeclared(whole, mechanism):
    """The sweep with a mechanism whose module has no card: its FLOPs are unknown until counted."""
    cards = (
        replace(card, complexity=UNDECLARED, time_exponent=None, memory_exponent=None, year=None)
        if card.mechanism == mechanism
        else card
        for card in whole.cards
    )
    return replace(whole, cards=tuple(cards))


def test_a_module_of_ones_own_whose_memory_was_not_measured_has_a_report():
    whole = undeclared(sweep(("fastformer", "transformer"), lengths=(128, 512)), "fastformer")
    whole = replace(whole, runs=tuple(run for run in whole.runs if run.part is Part.TIME))
    files = page.report_files(analyse(whole))
    assert "transformer" in files["over_bound_training.csv"].decode()
    assert "fastformer" in files["latency_training.csv"].decode()
