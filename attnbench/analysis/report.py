"""Everything that a report states about a sweep, computed once; `report` only writes it.

Ratios, winners and crossovers are of series of equal sizes, which were measured in turns; where a
sweep crosses sizes, they are part of the names of its series.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from attnbench.analysis import columns, concluding, scaling, summary
from attnbench.analysis.answers import Answers, answers, rows
from attnbench.analysis.conclusions import Conclusion, Question, about
from attnbench.analysis.scaling import speedups
from attnbench.analysis.standings import Standings, counted_in_full
from attnbench.analysis.statistics.curves import series_of
from attnbench.analysis.statistics.ratios import Ratios
from attnbench.analysis.summary import Frame, timed_runs
from attnbench.analysis.suspects import rankable, without_launches
from attnbench.analysis.warnings import warnings
from attnbench.errors import UnknownMechanism
from attnbench.records import Sweep, metrics

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
        compared = self.cases[self.cases["error"].notna()]
        worst = compared.groupby(["mechanism", "form", "options", "sizes"], sort=False)[
            "error"
        ].max()
        return worst.reset_index().sort_values("error", ascending=False, kind="stable")

    @property
    def modes(self) -> list[str]:
        """The modes of the cases, in the order of the plan."""
        return list(dict.fromkeys(self.cases["mode"]))

    @property
    def suspects(self) -> Mapping[str, str]:
        """Why each series that is shown and not ranked is suspect, by its name."""
        rows = self.cases[self.cases["suspect"] != ""].drop_duplicates("series")
        return dict(zip(rows["series"], rows["suspect"], strict=True))

    @property
    def baselines(self) -> tuple[str, ...]:
        """The series to compare with in any mode."""
        return tuple(
            dict.fromkeys(name for names in self.baselines_by_mode.values() for name in names)
        )

    @cached_property
    def baselines_by_mode(self) -> Mapping[str, tuple[str, ...]]:
        """The series to compare with in each mode, one for each combination of sizes.

        The chosen ones, where they were timed at the front of the mode; else one that was timed
        there: of those softmax attention, or else the first. One that was timed at the fronts of
        all modes comes before others, and one that is suspect last.
        """
        return {mode: self._baselines(mode) for mode in self.modes}

    def _baselines(self, mode: str) -> tuple[str, ...]:
        cases = self.cases
        at_front = self._timed_at_front(mode)
        usual = cases[cases["mode"] == mode].drop_duplicates("series")
        if self.against:
            sizes = cases.loc[cases["series"].isin(self.against), "sizes"]
            usual = usual[usual["sizes"].isin(sizes)]
        elsewhere = sum(
            ~usual["series"].isin(self._timed_at_front(front.mode)) for front in self.answers.fronts
        )
        chosen = usual["series"].isin([name for name in self.against if name in at_front])
        order = usual.assign(
            chosen=~chosen,
            untimed=~usual["series"].isin(at_front),
            suspect=usual["suspect"] != "",
            elsewhere=elsewhere,
            other=usual["mechanism"] != SOFTMAX,
        ).sort_values(["chosen", "untimed", "suspect", "elsewhere", "other"], kind="stable")
        return tuple(map(str, order.drop_duplicates("sizes")["series"]))

    def not_compared(self, mode: str) -> tuple[str, ...]:
        """The series chosen to compare with that were not timed where the mode is compared."""
        return tuple(name for name in self.against if name not in self.baselines_by_mode[mode])

    def _timed_at_front(self, mode: str) -> frozenset[str]:
        """The series whose times are compared at the front of a mode."""
        front = self.answers.front(mode)
        cases = self.judged
        if front is None:
            return frozenset()
        there = cases[(cases["mode"] == mode) & (cases["seq_len"] == front.seq_len)]
        return frozenset(there.loc[there[metrics.TIME] > 0, "series"])

    @property
    def reported(self) -> Frame:
        """The cases as CSV, JSON and Python have them: `columns.explained` says what each has."""
        return columns.reported(self.cases)

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
        pairs = scaling.pairs(rankable(self.cases), self.ratios)
        return tuple(concluding.conclusions(plans, self.answers, pairs, self.exponents))

    def about(
        self,
        question: Question,
        mode: str | None = None,
        series: str | None = None,
        against: Collection[str] | None = None,
    ) -> list[Conclusion]:
        """The conclusions on a question.

        mode: only those in it.
        series: only those on it.
        against: only those that compare with one of these.
        """
        return [*about(self.conclusions, question, mode, series, against)]

    @cached_property
    def rows(self) -> Frame:
        """`answers.rows` at the front of each mode."""
        return rows(
            self.cases,
            self.answers.fronts,
            self.baselines_by_mode,
            self.speedups,
            self.crossovers,
        )

    @cached_property
    def speedups(self) -> Frame | None:
        """`scaling.speedups` over the baselines; None without two series of equal sizes."""
        if not (self.cases.groupby("sizes")["series"].nunique() > 1).any():
            return None
        return speedups(self.judged, self.baselines_by_mode, self.ratios)

    @cached_property
    def crossovers(self) -> Frame:
        """`concluding.crossovers`: a row for each mode and ordered pair of series."""
        return concluding.crossovers(self.conclusions)

    @cached_property
    def exponents(self) -> Frame:
        """`scaling.scaling` of the cases."""
        return scaling.scaling(counted_in_full(self.judged))

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
    series = _series(sweep, cases, against) if against else ()
    return Analysis(sweep=sweep, cases=cases, against=series)


def _series(sweep: Sweep, cases: Frame, name: str) -> tuple[str, ...]:
    """The series of that name, with any sizes, or the first of the mechanism, for each sizes."""
    plain = cases["key"].map({key: one.plain for key, one in series_of(sweep.plan).items()})
    for named in (cases["series"], plain, cases["mechanism"]):
        if (rows := cases[named == name]).size:
            return tuple(map(str, rows.drop_duplicates("sizes")["series"]))
    mechanisms = ", ".join(dict.fromkeys(cases["mechanism"])) or "none"
    raise UnknownMechanism(f"no mechanism {name!r} in the sweep; known: {mechanisms}")
