"""Sweeps that are ranked, and what is advised of them."""

from attnbench.analysis.report import analyse
from attnbench.commands.recommend.analysis import recommend, recommendations
from attnbench.commands.recommend.page import recommended
from attnbench.records import Cause, Mode
from tests.sweeps import LENGTHS, lost, sweep

SHORT = (128, 512, 2048)


MEASURED, LONGEST = 8192, 65_536  # a sweep that the budget ended goes up to the first


QUIET = {"restart": 0.002, "noise": 0.002, "lengths": SHORT, "modes": (Mode.INFERENCE,)}


def advised(whole, seq_len, memory=None):
    return recommend(analyse(whole), seq_len, memory)


def text(whole, seq_len, memory=None):
    """The sentence of a sweep of one mode."""
    analysis = analyse(whole)
    (pair,) = recommendations(analysis, recommend(analysis, seq_len, memory))
    return recommended(*pair)


def over_budget(case):
    return lost(case, cause=Cause.BUDGET) if case.workload.seq_len > MEASURED else None


def ended(*series, lengths=LENGTHS):
    return sweep(series, end=over_budget, **QUIET | {"lengths": lengths})
