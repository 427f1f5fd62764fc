"""Why one mechanism takes longer than another: times and counts of both at each level."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, nan

from attnbench.analysis.report import analyse
from attnbench.analysis.scaling import speedups
from attnbench.analysis.summary import Frame, Row
from attnbench.errors import CannotRun
from attnbench.metrics import TIME
from attnbench.records import MISSING, Sweep

COUNTS = ("flops", "operators", "kernels", "moved_bytes")  # kernels: on a GPU


@dataclass(frozen=True, kw_only=True)
class LevelCosts:
    """Both mechanisms at one level: their rows of `summary`, and times of the first over the other.

    The ratio has its 95 % confidence interval, NaN after one round; it is NaN unless both ran.
    """

    level: str
    a: Row
    b: Row
    ratio: float = nan
    low: float = nan
    high: float = nan

    @property
    def cases(self) -> Frame:
        """The rows of both."""
        return Frame([self.a, self.b])


def by_level(sweeps: Sequence[Sweep]) -> list[LevelCosts]:
    """The costs at the level of each sweep, which has one case of each of two mechanisms.

    Raises `CannotRun`, with the last reason, if no level timed both.
    """
    found = []
    for sweep in sweeps:
        first, second = (planned.case.series for planned in sweep.plan)
        analysis = analyse(sweep, first)
        rows = analysis.cases
        a, b = (rows[rows["series"] == name].iloc[0] for name in (first, second))
        ratios = speedups(rows, {a["mode"]: (first,)}, analysis.ratios).to_dict("records")
        ends = {name: row[name] for row in ratios for name in ("ratio", "low", "high")}
        found.append(LevelCosts(level=str(sweep.request.level), a=a, b=b, **ends))
    if all(isnan(level.ratio) for level in found):
        lost = next(row for row in (b, a) if isnan(row[TIME]))
        late = lost["outcome"] == MISSING
        why = "the budget ended before; raise --budget" if late else lost["reason"]
        raise CannotRun(f"no level timed both: {lost['series']}: {why}")
    return found
