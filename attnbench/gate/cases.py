"""The cases of a check: what is asked of each side, and what became of it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import msgspec

from attnbench.gate.pairs import Pair, Stage, Statistic, Trial, mean, mean_of
from attnbench.gate.rule import CPU_THRESHOLD
from attnbench.records import Level, Mode, Option, Workload
from attnbench.run.pairs import AGAIN, BASE, HEAD, Failed, Laps, TreeRace
from attnbench.run.workers import Answer

ITERATION_S = 0.005  # a batch is sized for this at least: shorter ones are mostly overhead
MOST_TOKENS = 1 << 16
VERDICT_S = 12.0  # of samples for one verdict; longer iterations get fewer rounds
FEWEST_ROUNDS = 4


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """A mechanism as each side names it; None where it has none. Options are the user's.

    A form that was not asked for is counted but not `timed`.
    """

    base: str | None
    head: str | None
    form: str | None = None  # None: each side's own default
    options: tuple[tuple[str, Option], ...] = ()
    timed: bool = True

    @property
    def name(self) -> str:
        """What it is called in the report."""
        return self.head or self.base or ""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is checked, and how. `tokens` is c of what is counted; a timed batch is sized."""

    chosen: tuple[Chosen, ...]
    lengths: tuple[int, ...] = (128, 512)
    modes: tuple[Mode, ...] = (Mode.TRAINING, Mode.INFERENCE)
    level: Level = Level.ATTENTION
    width: int = 256
    heads: int = 16
    dtype: str = "float32"
    device: str = "cpu"
    tokens: int = 1024
    rounds: int = 20
    pairs: int = 6
    confirm: int = 10
    iteration_s: float = ITERATION_S
    budget_s: float | None = 300.0
    threshold: float = CPU_THRESHOLD
    times: bool = True
    seed: int = 0


@dataclass(kw_only=True)
class Line:
    """One case on its way through a check."""

    chosen: Chosen
    workload: Mapping[str, Any]
    answers: dict[str, Answer] = field(default_factory=dict)
    race: TreeRace | None = None
    stages: tuple[list[Laps], list[Laps]] = field(default_factory=lambda: ([], []))
    broken: Failed | None = None
    skipped: str = ""

    def asked(self, side: str) -> dict[str, Any]:
        """What a side needs to know to build it."""
        name = self.chosen.head if side == HEAD else self.chosen.base
        return {
            "mechanism": name,
            "form": self.chosen.form,
            "options": self.chosen.options,
            "workload": self.workload,
        }

    @property
    def label(self) -> str:
        """The case as head names it, or base where head has none."""
        for side in (HEAD, BASE):
            if found := self.answers.get(side, {}).get("case"):
                return str(found)
        asked = msgspec.convert({**self.workload, "causal": False}, Workload)
        return f"{self.chosen.name}:{self.chosen.form or 'default'}/{asked}"

    @property
    def batch(self) -> int | None:
        """The batch that is timed, which is sized by its time and not the one that is counted."""
        return int(self.race.builds[HEAD]["workload"]["batch"]) if self.race else None

    def seconds(self, side: str, statistic: Statistic = Statistic.TYPICAL) -> tuple[float, ...]:
        """Seconds of one iteration in each process of a side: its median sample, or its mean."""
        of = mean if statistic is Statistic.AVERAGE else median
        return tuple(of(laps[side]) for stage in self.stages for laps in stage if side in laps)

    @property
    def trial(self) -> Trial:
        """Its pairs, for the rule."""
        first, second = (
            Stage(
                head=tuple(Pair.of(laps[BASE], laps[HEAD]) for laps in stage),
                again=tuple(Pair.of(laps[BASE], laps[AGAIN]) for laps in stage),
            )
            for stage in self.stages
        )
        return Trial(name=self.label, first=first, second=second)

    @property
    def family(self) -> str:
        """What a geometric mean over lengths is taken of: a series and its mode."""
        options = ",".join(f"{name}={value}" for name, value in self.chosen.options)
        form = f":{self.chosen.form}" if self.chosen.form else ""
        series = f"{self.chosen.name}{form}" + (f"[{options}]" if options else "")
        return f"{series}, {self.workload['mode']}"


def families(lines: Sequence[Line]) -> list[tuple[list[Line], Trial]]:
    """Every raced case, and for each series and mode with several the mean over lengths."""
    raced = [line for line in lines if line.race and not line.broken]
    found = [([line], line.trial) for line in raced]
    for family in dict.fromkeys(line.family for line in raced):
        members = [line for line in raced if line.family == family and line.stages[0]]
        if len(members) > 1:
            name = f"{family}, mean of {len(members)} lengths"
            found.append((members, mean_of(name, [line.trial for line in members])))
    return found


def workload(plan: Plan, mode: Mode, seq_len: int) -> dict[str, Any]:
    """What a side is asked: only what is not its own default, so that an older one understands."""
    asked: dict[str, Any] = {
        "batch": max(1, plan.tokens // seq_len),
        "seq_len": seq_len,
        "width": plan.width,
        "heads": plan.heads,
        "level": plan.level,
        "mode": mode,
        "dtype": plan.dtype,
        "device": plan.device,
    }
    if plan.level is Level.MODEL:
        asked["shell"] = {"dropout": 0.2}
    return asked


def batch_for(workload: Mapping[str, Any], took_s: float, wanted_s: float) -> int:
    """The fewest sequences, as a power of two, that take as long as wanted."""
    per_sequence = took_s / workload["batch"]
    most = max(1, MOST_TOKENS // workload["seq_len"])
    wanted = max(1.0, wanted_s / per_sequence)
    return int(min(2 ** math.ceil(math.log2(wanted)), 2 ** int(math.log2(most))))


def rounds_for(plan: Plan, entrants: int, sample_s: float) -> int:
    """Rounds of a pair, so that both stages together stay within the time of a verdict."""
    of_one = 2 * entrants * (plan.pairs + plan.confirm) * sample_s
    return min(plan.rounds, max(FEWEST_ROUNDS, int(VERDICT_S / of_one)))
