"""Everything that a report states about a sweep, computed once; `render` only writes it.

Ratios, winners and crossovers are of series of equal sizes, which were measured in turns; where a
sweep crosses sizes, they are part of the names of its series.
"""

from dataclasses import dataclass
from functools import cached_property

from attnbench.analysis import concluding, scaling, summary
from attnbench.analysis.answers import Answers, answers, rows
from attnbench.analysis.conclusions import Conclusion
from attnbench.analysis.scaling import crossovers, speedups
from attnbench.analysis.standings import Standings
from attnbench.analysis.summary import Frame, timed_runs
from attnbench.analysis.suspects import rankable, without_launches
from attnbench.analysis.warnings import warnings
from attnbench.errors import UnknownMechanism
from attnbench.records import Sweep, split_sizes
from attnbench.statistics.ratios import Ratios

SOFTMAX = "transformer"  # the default mechanism to compare with


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """A sweep and all that follows from it, computed on first use.

    The function that makes a frame documents its columns.
    """

    sweep: Sweep
    cases: Frame  # of `summary`
    against: tuple[str, ...] = ()  # the series chosen to compare with, one for each of the sizes

    @cached_property
    def ratios(self) -> Ratios:
        """The ratios of the times of series that took turns."""
        return Ratios(self.sweep)

    @cached_property
    def precision(self) -> Frame:
        """The largest relative error of each form, least precise first; empty if none was measured.

        Columns: mechanism, form, options, sizes, error (of the output, against float64).
        """
        known = self.cases[self.cases["error"].notna()]
        worst = known.groupby(["mechanism", "form", "options", "sizes"], sort=False)["error"].max()
        return worst.reset_index().sort_values("error", ascending=False, kind="stable")

    @property
    def modes(self) -> list[str]:
        """The modes of the cases, in the order of the plan."""
        return list(dict.fromkeys(self.cases["mode"]))

    @property
    def baselines(self) -> tuple[str, ...]:
        """The series to compare with: the chosen ones, else softmax attention, else the first.

        There is one for each combination of sizes. One that is not ranked comes last.
        """
        other, suspect = self.cases["mechanism"] != SOFTMAX, self.cases["suspect"] != ""
        order = (other + 2 * suspect).sort_values(kind="stable").index
        usual = self.cases.loc[order].drop_duplicates("sizes")["series"]
        return self.against or tuple(map(str, usual))

    @cached_property
    def judged(self) -> Frame:
        """The cases with the times that are compared: on a GPU, those without launches."""
        return without_launches(self.cases)

    @cached_property
    def standings(self) -> Standings:
        """The comparisons of all series at each length."""
        return Standings(rankable(self.cases), self.ratios)

    @cached_property
    def answers(self) -> Answers:
        """What the sweep found."""
        return answers(self.cases, self.standings)

    @cached_property
    def conclusions(self) -> tuple[Conclusion, ...]:
        """What may be concluded, question by question, in the order of the plan."""
        plans = concluding.plans(self.judged, self.sweep.request)
        pairs = [*scaling.pairs(rankable(self.cases), self.ratios)]
        return tuple(concluding.conclusions(plans, self.answers, pairs, self.exponents))

    @cached_property
    def rows(self) -> Frame:
        """`answers.rows` at the length of the answers."""
        return rows(self.cases, self.answers, self.baselines, self.speedups, self.crossovers)

    @cached_property
    def speedups(self) -> Frame | None:
        """`scaling.speedups` over the baselines; None without two series of equal sizes."""
        if not (self.cases.groupby("sizes")["series"].nunique() > 1).any():
            return None
        return speedups(self.judged, self.baselines, self.ratios)

    @cached_property
    def crossovers(self) -> Frame:
        """`scaling.crossovers` of times."""
        return crossovers(rankable(self.cases), self.ratios)

    @cached_property
    def exponents(self) -> Frame:
        """`scaling.scaling` of the cases."""
        return scaling.scaling(self.judged)

    @property
    def disturbed(self) -> float:
        """The share of laps that page faults or a slow core disturbed even when taken again."""
        laps = [s.disturbed is not None for run in timed_runs(self.sweep.runs) for s in run.samples]
        return sum(laps) / max(len(laps), 1)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Reasons to trust the numbers less, the most serious first."""
        return tuple(warnings(self.sweep, self.cases))


def analyse(sweep: Sweep, against: str | None = None) -> Analysis:
    """The analysis of a sweep; `against` is the mechanism or series to compare with.

    Raises `UnknownMechanism` with the known names if the sweep lacks the mechanism.
    """
    cases = summary.summary(sweep)
    return Analysis(sweep=sweep, cases=cases, against=_series(cases, against) if against else ())


def _series(cases: Frame, name: str) -> tuple[str, ...]:
    """The series of that name, with any sizes, or the first of the mechanism, for each sizes."""
    plain = cases["series"].map(lambda series: split_sizes(series)[0])
    for named in (cases["series"], plain, cases["mechanism"]):
        if (found := cases[named == name]).size:
            return tuple(map(str, found.drop_duplicates("sizes")["series"]))
    known = ", ".join(dict.fromkeys(cases["mechanism"])) or "none"
    raise UnknownMechanism(f"no mechanism {name!r} in the sweep; known: {known}")
