"""The records of claims: what is asserted, what was measured, and the judgement."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from math import inf, log, nan
from typing import Any, Self, TypeAlias

import numpy as np

from attnbench.metrics import EXACT, NAMED, Unit
from attnbench.records import Level, Mode, Selection

# a claimed length stands for a measured one within this factor: 1,000 for 1,024, 4,000 for 4,096
NEAR = 1.1

# a claimed number allows this factor either way, since machines, code and sizes differ: where two
# papers print the same ratio (Linformer and Longformer over the Transformer), they agree within it
# in four of five pairs, and within 1.5 in hardly more than half
FACTOR = 2.0


class OutOfScope(Exception):
    """The sweep does not measure what a claim is about; the message says why."""


class ClaimedCost(StrEnum):
    """The name of a metric that claims compare: of one sequence, and for FLOPs of one layer."""

    locals().update({name.upper(): name for name in NAMED})

    @property
    def counted(self) -> bool:
        """Whether it is the same in every mode that has it."""
        return NAMED[self].tolerance == EXACT


TIME, CORE_FLOPS = ClaimedCost("time"), ClaimedCost("core_flops")


Group: TypeAlias = tuple[Selection, ...]
Costs: TypeAlias = tuple[ClaimedCost, ClaimedCost]  # of A and of B
# a sum of products: the powers of N and of log N in each; other symbols are constants
Formula: TypeAlias = tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True)
class Range:
    """Where a number lies according to a claim; strict inequalities count as weak ones."""

    text: str
    low: float = 0.0
    high: float = inf


@dataclass(frozen=True, kw_only=True)
class Lengths(Range):
    """The lengths that a claim is about: those listed, else all from `low` to `high`."""

    listed: tuple[float, ...] = ()

    def among(self, measured: Sequence[int]) -> list[int]:
        """The measured lengths that the claim is about. Raises `OutOfScope` if there are none."""
        near = {nearest(length, measured) for length in self.listed}
        chosen = [n for n in measured if (n in near if near else self.low <= n <= self.high)]
        if not measured:
            raise OutOfScope("no length was measured on both sides")
        if not chosen:
            span = f"measured from {min(measured):,} to {max(measured):,}"
            raise OutOfScope(f"nothing at lengths {self.text}: {span}")
        return chosen


ALL = Lengths(text="all")


def nearest(length: float, measured: Sequence[int]) -> int | None:
    """The measured length that a claimed one stands for, or None if none is close enough."""
    best = min(measured, key=lambda n: abs(log(n / length)), default=None)
    return None if best is None or abs(log(best / length)) > log(NEAR) else best


@dataclass(frozen=True, kw_only=True)
class Check:
    """A predicate with its arguments by name, and the mode, level and device it is restricted to.

    Without a mode, every mode but decode is judged.
    """

    text: str
    predicate: Callable[..., "Judgement"]
    arguments: Mapping[str, Any]
    subjects: Group  # every mechanism that it names
    counted: bool = False  # about counts alone, which are the same in every mode
    mode: Mode | None = None
    level: Level | None = None
    device: str = ""  # a part of its name


@dataclass(frozen=True, kw_only=True)
class Claim:
    """An assertion of a source, as one plain sentence and as checks, all of which must hold.

    `scope` says how and on what the source measured, and whether that is stated or read off its
    numbers.
    """

    id: str
    source: str
    claim: str
    scope: str
    checks: tuple[Check, ...]

    @property
    def text(self) -> str:
        """All checks on one line."""
        return " and ".join(check.text for check in self.checks)

    def matches(self, pattern: str) -> bool:
        """Whether the pattern fits the id or a mechanism that a check names."""
        named = {subject.name for check in self.checks for subject in check.subjects}
        return any(fnmatchcase(name, pattern) for name in (self.id, *named))


class Answer(StrEnum):
    """How a sweep judges a claim."""

    REPRODUCED = "reproduced"
    NOT_REPRODUCED = "not reproduced"
    CANNOT_TELL = "cannot tell"
    OUT_OF_SCOPE = "out of scope"


@dataclass(frozen=True, kw_only=True)
class Number:
    """A measured number behind an answer, with its 95 % confidence interval where it has one."""

    what: str
    unit: Unit
    value: float
    low: float = nan
    high: float = nan
    length: int | None = None  # None: over all lengths

    @classmethod
    def ratio(cls, what: str, log: float, low: float, high: float, at: float | None = None) -> Self:
        """A ratio from its logarithm and the ends of that logarithm's confidence interval."""
        value, low, high = (float(np.exp(end)) for end in (log, low, high))
        length = None if at is None else int(at)
        return cls(what=what, unit=Unit.RATIO, value=value, low=low, high=high, length=length)


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """An answer, why, the numbers behind it (the most informative first) and their lengths."""

    answer: Answer
    why: str = ""
    numbers: tuple[Number, ...] = ()
    lengths: tuple[int, ...] = ()
