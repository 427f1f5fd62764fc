"""What a check measures: its plan, and its cases with their results.

A case is raced as head against base, and as base against base, which is the noise floor.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

from attnbench.commands.check.rule import Logs, Statistic, View, log_ratio, mean
from attnbench.records import (
    Case,
    Cause,
    Level,
    Mode,
    Outcome,
    Selection,
    Shell,
    Workload,
    messages,
)
from attnbench.records.modes import BOTH

BASE = "base"
HEAD = "head"
AGAIN = "again"  # base a second time
SIDES = (BASE, HEAD, AGAIN)  # of a race
MISSING = "missing"  # outcome on a side that lacks the mechanism or form

MOST_TOKENS = 1 << 16
VERDICT_S = 20.0  # of samples per verdict; longer iterations get fewer rounds
FEWEST_ROUNDS = 4
PAIRS_OF_ALL = 10  # pairs of every case, that a budget should be enough for
START_S = 0.15  # of a process
WARM = 6  # iterations before its first sample

Trees: TypeAlias = dict[str, Path]  # of each side
Visit: TypeAlias = Mapping[str, tuple[float, ...]]  # seconds of one iteration, by side


@dataclass(frozen=True, kw_only=True)
class CheckPlan:
    """How a check measures.

    `tokens` is B · N of the batch that is counted; the batch that is timed is sized so that one
    iteration takes `iteration_s`, since shorter ones are mostly overhead. A first and a
    second look take `looks` pairs of processes, of at most `rounds` pairs of samples each. Where
    these leave doubt, a case gets up to `most` pairs in all, as long as there is time.
    `spent_s` have passed of the user's budget, beside `budget_s`, before the check began.
    `prepare` is a command that is run in both trees first. With `results`, what functions return
    is compared too.
    """

    lengths: tuple[int, ...] = (128, 512)
    modes: tuple[Mode, ...] = BOTH
    level: Level = Level.ATTENTION
    width: int = 256
    heads: int = 16
    dtype: str = "float32"
    device: str = "cpu"
    tokens: int = 1024
    rounds: int = 20
    looks: tuple[int, int] = (10, 16)
    most: int = 64
    iteration_s: float = 0.005
    budget_s: float | None = 300.0
    spent_s: float = 0.0
    threshold: float = 0.02
    times: bool = True
    prepare: str = ""
    results: bool = False

    def workload(self, mode: Mode, seq_len: int) -> Workload:
        """The workload that is counted at one length."""
        return Workload(
            batch=max(1, self.tokens // seq_len),
            seq_len=seq_len,
            width=self.width,
            heads=self.heads,
            level=self.level,
            mode=mode,
            dtype=self.dtype,
            device=self.device,
            shell=Shell() if self.level is Level.MODEL else None,
        )

    @property
    def visit_s(self) -> float:
        """The approximate seconds of one visit to a case, on a quiet machine."""
        return len(SIDES) * (START_S + (2 * self.rounds + WARM) * self.iteration_s)

    def fitted_to_time(self, cases: int, left_s: float) -> "CheckPlan":
        """The plan with so many samples in each pair that the time is enough for some pairs of all.

        How two processes differ weighs more than how samples of one do, so that more pairs tell
        more than more samples.
        """
        sides_s = left_s / (max(1, cases) * PAIRS_OF_ALL * len(SIDES)) - START_S
        if math.isinf(sides_s):
            return self
        rounds = int((sides_s / self.iteration_s - WARM) / 2)
        return replace(self, rounds=min(self.rounds, max(FEWEST_ROUNDS, rounds)))

    def batch_for(self, workload: Workload, took_s: float) -> int:
        """The least power of two of sequences for which an iteration takes `iteration_s`."""
        most = max(1, MOST_TOKENS // workload.seq_len)
        sequences = max(1.0, self.iteration_s * workload.batch / took_s)
        return int(min(2 ** math.ceil(math.log2(sequences)), 2 ** int(math.log2(most))))

    def rounds_for(self, sample_s: float) -> int:
        """Rounds of a pair such that both looks together take at most `VERDICT_S`."""
        round_s = 2 * len(SIDES) * sum(self.looks) * sample_s
        return min(self.rounds, max(FEWEST_ROUNDS, int(VERDICT_S / round_s)))


@dataclass(frozen=True, kw_only=True)
class Counted:
    """The counts of a case on one side; `case` is the label of what ran."""

    outcome: str
    reason: str = ""
    cause: str | None = None
    case: str = ""
    values: Mapping[str, int | float] = field(default_factory=dict)

    @classmethod
    def of(cls, answer: messages.Weighed | messages.Failure) -> "Counted":
        """The counts in an answer, or why there are none."""
        if isinstance(answer, messages.Failure):
            return cls(outcome=answer.outcome, reason=answer.reason, cause=answer.cause)
        return cls(outcome=Outcome.OK, case=answer.case, values=answer.values)

    @property
    def ran(self) -> bool:
        """Whether it was counted."""
        return self.outcome == Outcome.OK

    @property
    def was_killed(self) -> bool:
        """Whether memory ran out or something else ended its process, perhaps not its own code."""
        return self.outcome == Outcome.OOM or self.cause == Cause.KILLED

    def excused_if_killed(self, side: str) -> "Counted":
        """This, or where it was killed, that it could not be measured: no fault of its code."""
        reason = f"could not be measured on {side}: {self.reason}"
        skipped = Counted(outcome=Outcome.SKIPPED, reason=reason, cause=Cause.KILLED)
        return skipped if self.was_killed else self


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """The files that a process had loaded after it ran a case: of modules, and other libraries."""

    modules: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """Modules and libraries."""
        return self.modules + self.libraries


@dataclass(kw_only=True, eq=False)
class CheckedCase:
    """One case during a check: counted on each side, then timed in two looks.

    A function has no workload, and its arguments as options. `loaded` has what a side loaded for
    it, and `apart` says why the two sides cannot be compared, though they may have run.
    """

    selection: Selection
    workload: Workload | None = None
    counted: dict[str, Counted] = field(default_factory=dict)  # by side
    outputs: dict[str, messages.Compared | messages.Failure] = field(
        default_factory=dict
    )  # by side
    loaded: dict[str, Loaded] = field(default_factory=dict)  # by side
    waits: bool = False  # whether time in which it sleeps or waits counts, beside CPU time
    apart: str = ""
    batch: int | None = None  # the timed batch, not the counted one
    looks: tuple[list[Visit], list[Visit]] = field(default_factory=lambda: ([], []))
    logs: dict[tuple[Statistic, str, int, int], float] = field(default_factory=dict)

    def build_request(self, batch: int | None = None) -> dict[str, Any]:
        """The fields of a question about the case, with another batch if one is given."""
        about: dict[str, Any] = {"mechanism": self.name, "options": self.selection.options}
        if self.workload is None:
            return about
        workload = replace(self.workload, batch=batch or self.workload.batch)
        return {**about, "form": self.selection.form, "workload": workload}

    def comparison(self, side: str) -> messages.Compared | None:
        """How the results of a side compare; None where they were not compared."""
        answer = self.outputs.get(side)
        return None if isinstance(answer, messages.Failure) else answer

    def reason_uncompared(self, *sides: str) -> str:
        """Why the results of the first of these sides that failed were not compared, or nothing."""
        answers = (self.outputs.get(side) for side in sides)
        return next(
            (answer.reason for answer in answers if isinstance(answer, messages.Failure)), ""
        )

    @property
    def name(self) -> str:
        """The mechanism's name in the report."""
        return self.selection.name

    @property
    def label(self) -> str:
        """The case as head names it, or base where head has none."""
        if self.workload is None:
            return str(self.selection)
        names = (self.counted[side].case for side in (HEAD, BASE) if side in self.counted)
        if label := next(filter(None, names), ""):
            return label
        form = self.selection.form or "default"
        options = self.selection.options
        return str(Case(mechanism=self.name, form=form, options=options, workload=self.workload))

    @property
    def ran(self) -> bool:
        """Whether it has run on every side, and can be compared."""
        return not self.apart and all(counted.ran for counted in self.counted.values())

    def seconds(self, side: str, statistic: Statistic) -> float | None:
        """The middle process of a side, each by the median of its samples or by their mean."""
        of = mean if statistic is Statistic.AVERAGE else median
        middles = [of(visit[side]) for look in self.looks for visit in look]
        return median(middles) if middles else None

    @property
    def visits(self) -> list[Visit]:
        """The visits of both looks."""
        return self.looks[0] + self.looks[1]

    @property
    def pairs(self) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
        """The samples of base, both times, and of head, in each pair of processes [s]."""
        return [(visit[BASE] + visit[AGAIN], visit[HEAD]) for visit in self.visits]

    def views(self, threshold: float) -> list[View]:
        """Both statistics of its pairs of processes, as the rule takes them."""

        def logs(statistic: Statistic, side: str, *looks: int) -> Logs:
            return tuple(
                self.log_of(statistic, side, look, pair)
                for look in looks
                for pair in range(len(self.looks[look]))
            )

        return [
            View(
                statistic,
                threshold,
                logs(statistic, HEAD, 0),
                logs(statistic, HEAD, 1),
                logs(statistic, AGAIN, 0, 1),
            )
            for statistic in Statistic
        ]

    def log_of(self, statistic: Statistic, side: str, look: int, pair: int) -> float:
        """The log ratio of a side over base in one pair of a look, worked out once."""
        key = (statistic, side, look, pair)
        if key not in self.logs:
            visit = self.looks[look][pair]
            self.logs[key] = log_ratio(statistic, visit[BASE], visit[side])
        return self.logs[key]


def planned_cases(plan: CheckPlan, selections: Sequence[Selection]) -> list[CheckedCase]:
    """Every mechanism in every mode at every length; duplicates count once."""
    return [
        CheckedCase(selection=one, workload=plan.workload(mode, n))
        for one in dict.fromkeys(selections)
        for mode in plan.modes
        for n in plan.lengths
    ]
