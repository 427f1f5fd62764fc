"""What was found of a user's function that claims to compute a mechanism."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attnbench.analysis.report import Analysis
from attnbench.analysis.scaling import Crossover, CrossoverKind
from attnbench.analysis.summary import Frame


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The function as a series, the mechanism, and where it was judged.

    `found` is of `verify.fitting.judged`; `race` is the sweep of both, if there was one.
    """

    function: str  # kimi_delta:kern.py:f
    mechanism: str
    dtype: str
    device: str
    found: Mapping[str, Any]
    race: Analysis | None = None

    @property
    def name(self) -> str:
        """`f`."""
        return self.function.rpartition(".py:")[2].partition("[")[0]

    @property
    def right(self) -> bool:
        """Whether it is right on usual inputs."""
        return self._passes("right")

    @property
    def steady(self) -> bool:
        """Whether it is right on stressed inputs, up to half of the digits."""
        return self._passes("steady")

    def _passes(self, part: str) -> bool:
        return all(row["passes"] for row in self.found["panel"] if row["part"] == part)

    @property
    def trains(self) -> bool:
        """Whether it has a backward pass."""
        return any(len(row["errors"]) > 1 for row in self.found["panel"])

    @property
    def speedups(self) -> Frame | None:
        """`scaling.speedups` of the function over the mechanism's form; None without a race."""
        found = self.race.speedups if self.race else None
        return None if found is None else found[found["series"] == self._series]

    def crossover(self, mode: str) -> Crossover:
        """From which length the function is faster than the mechanism's form."""
        assert self.race is not None, "asked only after a race"
        rows = self.race.crossovers
        own = rows[(rows["mode"] == mode) & (rows["series"] == self._series)]
        if own.empty:
            return Crossover(CrossoverKind.UNCLEAR)
        row = own.iloc[0]
        return Crossover(CrossoverKind(row["answer"]), row["length"], row["low"], row["high"])

    @property
    def _series(self) -> str:
        assert self.race is not None, "asked only after a race"
        series = map(str, self.race.cases["series"])
        return next(name for name in series if name not in self.race.baselines)
