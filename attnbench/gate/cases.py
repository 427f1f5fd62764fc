"""What a check measures: its plan, and its cases with their results."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from statistics import median
from typing import Any

from attnbench.gate.pairs import AGAIN, BASE, HEAD, START_S, WARM, Failed, Laps, TreeRace, Visit
from attnbench.gate.rule import FEWEST, Evidence, Pair, Stage, Statistic, mean, mean_of
from attnbench.metrics import RACED, TIME
from attnbench.modes import BOTH
from attnbench.records import Case, Cause, Level, Mode, Outcome, Selection, Shell, Workload

ITERATION_S = 0.005  # least time of an iteration: shorter ones are mostly overhead
MOST_TOKENS = 1 << 16
VERDICT_S = 20.0  # of samples per verdict; longer iterations get fewer rounds
FEWEST_ROUNDS = 4
MISSING = "missing"  # outcome on a side that lacks the mechanism or form


@dataclass(frozen=True, kw_only=True)
class CheckPlan:
    """How a check measures.

    `tokens` is B · N of the batch that is counted; the batch that is timed is sized so that one
    iteration takes `iteration_s`. `pairs` of processes are timed in the first look and `confirm`
    in the second, with at most `rounds` pairs of samples each.
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
    pairs: int = 10
    confirm: int = 16
    iteration_s: float = ITERATION_S
    budget_s: float | None = 300.0
    threshold: float = 0.02
    times: bool = True
    seed: int = 0

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
    def cases(self) -> int:
        """The number of cases of each form."""
        return len(self.modes) * len(self.lengths)

    @property
    def visit_s(self) -> float:
        """The approximate seconds of one visit to a case, on a quiet machine."""
        return 3 * (START_S + (2 * self.rounds + WARM) * self.iteration_s)

    @property
    def looks(self) -> tuple[int, int]:
        """The pairs of the first and the second look at a case."""
        return self.pairs, self.confirm

    @property
    def least(self) -> tuple[int, int]:
        """The pairs of either look where the budget is short."""
        return max(FEWEST, self.pairs // 2), max(FEWEST, self.confirm // 2)

    def batch_for(self, workload: Workload, took_s: float) -> int:
        """The least power of two of sequences for which an iteration takes `iteration_s`."""
        per_sequence = took_s / workload.batch
        most = max(1, MOST_TOKENS // workload.seq_len)
        wanted = max(1.0, self.iteration_s / per_sequence)
        return int(min(2 ** math.ceil(math.log2(wanted)), 2 ** int(math.log2(most))))

    def rounds_for(self, sides: int, sample_s: float) -> int:
        """Rounds of a pair such that both looks together take at most `VERDICT_S`."""
        round_s = 2 * sides * (self.pairs + self.confirm) * sample_s
        return min(self.rounds, max(FEWEST_ROUNDS, int(VERDICT_S / round_s)))


@dataclass(frozen=True, kw_only=True)
class MechanismPair:
    """A mechanism as base and head name it; reports name it as head does.

    `further`: a form that was not asked for, which only counts if it runs and is not the default.
    """

    base: Selection
    head: Selection
    further: bool = False
    timed: bool = True

    def in_form(self, form: str | None, further: bool = True) -> "MechanismPair":
        """The same mechanism in one form; None: the default one."""
        base, head = (replace(side, form=form) for side in (self.base, self.head))
        return MechanismPair(base=base, head=head, further=further)


@dataclass(frozen=True, kw_only=True)
class Counted:
    """The counts of a case on one side; `case` is the label of what ran."""

    outcome: str
    reason: str = ""
    cause: str | None = None
    form: str = ""
    case: str = ""
    values: Mapping[str, int | float] = field(default_factory=dict)

    @property
    def ran(self) -> bool:
        """Whether it was counted."""
        return self.outcome == Outcome.OK

    @property
    def killed(self) -> bool:
        """Whether memory ran out or something else ended its process, perhaps not its own code."""
        return self.outcome == Outcome.OOM or self.cause == Cause.KILLED


def unmeasured(side: str, reason: str) -> Counted:
    """What counts for a side whose process was killed, perhaps by no fault of its code."""
    reason = f"could not be measured on {side}: {reason}"
    return Counted(outcome=Outcome.SKIPPED, reason=reason, cause=Cause.KILLED)


@dataclass(kw_only=True)
class CheckedCase:
    """One case during a check: counted on each side, then timed in two looks, if it is `due`."""

    compared: MechanismPair
    workload: Workload
    counted: dict[str, Counted] = field(default_factory=dict)  # by side
    race: TreeRace | None = None
    due: bool = False
    batch: int | None = None  # the timed batch, not the counted one
    stages: tuple[list[Visit], list[Visit]] = field(default_factory=lambda: ([], []))
    failed: Failed | None = None
    kills: list[Failed] = field(default_factory=list)

    def build_request(self, side: str, batch: int | None = None) -> dict[str, Any]:
        """The request that makes a side build the case, with another batch if one is given."""
        selection = self.compared.head if side == HEAD else self.compared.base
        return {
            "mechanism": selection.name,
            "form": selection.form,
            "options": selection.options,
            "workload": workload_request(
                replace(self.workload, batch=batch or self.workload.batch)
            ),
        }

    @property
    def name(self) -> str:
        """The mechanism's name in the report."""
        return self.compared.head.name

    @property
    def label(self) -> str:
        """The case as head names it, or base where head has none."""
        for side in (HEAD, BASE):
            if side in self.counted and self.counted[side].case:
                return self.counted[side].case
        chosen = self.compared.head
        form, options = chosen.form or "default", chosen.options
        case = Case(mechanism=chosen.name, form=form, options=options, workload=self.workload)
        return str(case)

    @property
    def ran(self) -> bool:
        """Whether every side counted it."""
        return all(counted.ran for counted in self.counted.values())

    def fail(self, failed: Failed) -> None:
        """Note that it failed in a visit: for good, unless its process was killed only once."""
        killed = Counted(outcome=failed.outcome, cause=failed.cause).killed
        self.kills += [failed] * killed
        if not killed or len(self.kills) > 1:
            self.failed = failed

    def laps(self, metric: str) -> tuple[list[Laps], ...]:
        """The laps of a metric in each visit, by stage."""
        return tuple([visit[metric] for visit in stage if metric in visit] for stage in self.stages)

    def numbers(
        self, side: str, statistic: Statistic = Statistic.TYPICAL, metric: str = TIME
    ) -> tuple[float, ...]:
        """One number per process of a side: the median of its samples, or their mean."""
        of = mean if statistic is Statistic.AVERAGE else median
        return tuple(of(laps[side]) for stage in self.laps(metric) for laps in stage)

    def evidence(self, metric: str) -> Evidence:
        """The pairs of processes, as the rule takes them."""
        first, second = (
            Stage(
                head=tuple(Pair.of(laps[BASE], laps[HEAD]) for laps in stage),
                again=tuple(Pair.of(laps[BASE], laps[AGAIN]) for laps in stage),
            )
            for stage in self.laps(metric)
        )
        return Evidence(name=self.label, metric=metric, first=first, second=second)

    @property
    def family(self) -> str:
        """The series and mode over whose lengths a geometric mean is taken."""
        return f"{self.compared.head}, {self.workload.mode}"


@dataclass(kw_only=True)
class FunctionCase(CheckedCase):
    """A function without arguments, in place of a mechanism."""

    def build_request(self, side: str, batch: int | None = None) -> dict[str, Any]:
        """The request that makes a side load the function."""
        return {"mechanism": self.name}

    @property
    def label(self) -> str:
        """The name of the function."""
        return self.name


def function_case(name: str) -> FunctionCase:
    """The case of a function."""
    selection = Selection(name=name)
    compared = MechanismPair(base=selection, head=selection)
    return FunctionCase(compared=compared, workload=Workload(batch=1, seq_len=1))


def planned(plan: CheckPlan, compared: Sequence[MechanismPair]) -> list[CheckedCase]:
    """Every mechanism in every mode at every length; duplicates count once."""
    return [
        CheckedCase(compared=mechanism, workload=plan.workload(mode, n))
        for mechanism in dict.fromkeys(compared)
        for mode in plan.modes
        for n in plan.lengths
    ]


def families(cases: Sequence[CheckedCase]) -> Iterator[tuple[list[CheckedCase], Evidence]]:
    """Every raced case, then the mean over lengths of each series and mode that has several.

    First those of times, then of each other metric that the cases have.
    """
    every = [case for case in cases if case.due and not case.failed]
    for metric in RACED:
        raced = [case for case in every if metric == TIME or case.laps(metric)[0]]
        yield from (([case], case.evidence(metric)) for case in raced)
        for family in dict.fromkeys(case.family for case in raced):
            members = [c for c in raced if c.family == family and len(c.stages[0]) >= FEWEST]
            if len(members) > 1:
                name = f"{family}, mean of {len(members)} lengths"
                yield members, mean_of(name, [case.evidence(metric) for case in members])


def workload_request(workload: Workload) -> dict[str, Any]:
    """A workload as the request to a side.

    Fields that older versions may not know are left out at their default, except dropout.
    """
    asked = asdict(workload)
    for f in fields(Workload):
        if f.name in ("causal", "padding", "shell") and asked[f.name] == f.default:
            del asked[f.name]
    if workload.shell is not None:
        usual = asdict(Shell())
        shell = {name: value for name, value in asked["shell"].items() if value != usual[name]}
        asked["shell"] = {"dropout": workload.shell.dropout} | shell
    return asked
