"""Two sweeps, and what their comparison finds."""

from attnbench.analysis.report import analyse
from attnbench.commands.compare.analysis import compare
from attnbench.records import Sweep
from tests.sweeps import sweep

QUIET = sweep(restart=0.005, noise=0.002)


def compared(first: Sweep, second: Sweep):
    return compare(analyse(first), analyse(second))


def verdicts(first: Sweep, second: Sweep, mechanism: str = "") -> set[str]:
    rows = compared(first, second).rows
    chosen = rows[(rows["metric"] == "time_s") & rows["series"].str.startswith(mechanism)]
    return set(chosen["verdict"])
