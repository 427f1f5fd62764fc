"""The records of claims: what is asserted, what was measured, and the judgement."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from math import inf, log, nan
from typing import Annotated, Any, Self

import numpy as np

from attnbench.metrics import Unit
from attnbench.records import Level, Option
from attnbench.statistics.curves import LogCurve

# a claimed length stands for a measured one within this factor: 1,000 for 1,024, 4,000 for 4,096
NEAR = 1.1

# "equal" allows this factor either way, since machines, code and sizes differ: where two papers
# print the same ratio (Linformer and Longformer over the Transformer), they agree within it in four
# of five pairs, and within 1.5 in hardly more than half
FACTOR = 2.0


class OutOfScope(Exception):
    """The sweep does not measure what a claim is about; the message says why."""


class ClaimedMode(StrEnum):
    """How a source measured."""

    INFERENCE = "inference"
    TRAINING = "training"
    UNPRINTED = "unprinted"  # the source does not say; every mode but decode is judged
    GENERATION = "generation"  # token by token, the mode decode of a sweep


class ClaimedCost(StrEnum):
    """A cost of one sequence, and for FLOPs of one layer, that is compared."""

    TIME = "time"  # in generation of a step
    MEMORY = "memory"
    STATE = "state"  # what generation keeps of past tokens, of one layer, in bytes
    FIRST_TOKEN = "first_token"  # time of the pass over the tokens before a step
    CORE_FLOPS = "core_flops"
    PROJECTION_FLOPS = "projection_flops"


class Sign(StrEnum):
    """How a measured number is compared with the claimed ones."""

    EQUAL = "=="
    AT_MOST = "<="
    AT_LEAST = ">="
    BELOW = "<"
    ABOVE = ">"
    WITHIN = "within"


@dataclass(frozen=True, kw_only=True)
class ClaimedSeries:
    """A mechanism as a claim names it; an option with several values matches any of them."""

    mechanism: str
    form: str | None = None
    options: tuple[tuple[str, tuple[Option, ...]], ...] = ()

    def __str__(self) -> str:
        pairs = (f"{name}={' or '.join(map(str, values))}" for name, values in self.options)
        form = f":{self.form}" if self.form else ""
        return self.mechanism + form + (f"[{', '.join(pairs)}]" if self.options else "")


@dataclass(frozen=True)
class ClaimedGroup:
    """Several mechanisms."""

    members: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Relation:
    """The comparison of a number; `WITHIN` has two values, every other sign one."""

    sign: Sign
    values: tuple[float, ...]

    def __str__(self) -> str:
        return f"{self.sign} {' and '.join(f'{value:,g}' for value in self.values)}"

    @property
    def bounds(self) -> tuple[float, float]:
        """The numbers between which the relation holds; strict inequalities count as weak ones."""
        first, last = self.values[0], self.values[-1]
        match self.sign:
            case Sign.EQUAL:
                return first / FACTOR, first * FACTOR
            case Sign.AT_MOST | Sign.BELOW:
                return 0.0, first
            case Sign.AT_LEAST | Sign.ABOVE:
                return first, inf
        return first, last


# relations of predicates that accept only some signs
Exactly = Annotated[Relation, Sign.EQUAL]
Bracket = Annotated[Relation, Sign.EQUAL, Sign.AT_MOST, Sign.WITHIN]


@dataclass(frozen=True, kw_only=True)
class Formula:
    """A sum of products: the powers of N and of log N in each term; other symbols are constants."""

    text: str
    terms: tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """The lengths that a claim is about: those listed, else all from `low` to `high`."""

    text: str = ""
    listed: tuple[int, ...] = ()
    low: float = 0.0
    high: float = inf

    def among(self, measured: Sequence[int]) -> list[int]:
        """The measured lengths that the claim is about. Raises `OutOfScope` if there are none."""
        near = {nearest(length, measured) for length in self.listed}
        chosen = [n for n in measured if (n in near if near else self.low <= n <= self.high)]
        if not measured:
            raise OutOfScope("no length was measured on both sides")
        if not chosen:
            span = f"measured from {min(measured):,} to {max(measured):,}"
            raise OutOfScope(f"nothing at {self.text}: {span}")
        return chosen


EVERYWHERE = Lengths()


def nearest(length: float, measured: Sequence[int]) -> int | None:
    """The measured length that a claimed one stands for, or None if none is close enough."""
    best = min(measured, key=lambda n: abs(log(n / length)), default=None)
    return None if best is None or abs(log(best / length)) > log(NEAR) else best


@dataclass(frozen=True, kw_only=True)
class Call:
    """A predicate or quantity with its arguments by name; one of them may be a call itself."""

    function: Callable[..., Any]
    arguments: Mapping[str, object]
    level: Level | None = None  # that the claim is restricted to
    device: str | None = None  # likewise

    @property
    def mode(self) -> ClaimedMode | None:
        """The mode that the text names, if any; what is about states is about generation."""
        for argument in self.arguments.values():
            mode = argument.mode if isinstance(argument, Call) else argument
            if isinstance(mode, ClaimedMode):
                return mode
        return ClaimedMode.GENERATION if ClaimedCost.STATE in self.arguments.values() else None

    @property
    def subjects(self) -> Iterator[ClaimedSeries]:
        """Every mechanism that the call names."""
        for argument in self.arguments.values():
            match argument:
                case ClaimedSeries():
                    yield argument
                case ClaimedGroup(members):
                    yield from (ClaimedSeries(mechanism=name) for name in members)
                case Call():
                    yield from argument.subjects


@dataclass(frozen=True, kw_only=True)
class Claim:
    """An assertion of a source, as one plain sentence and as a check.

    All calls of `check` must hold; `text` is its source text. `scope` says how and on what the
    source measured, and whether that is stated or read off its numbers.
    """

    id: str
    source: str
    claim: str
    text: str
    check: tuple[Call, ...]
    scope: str

    def matches(self, pattern: str) -> bool:
        """Whether the pattern fits the id or a mechanism that the check names."""
        named = {subject.mechanism for call in self.check for subject in call.subjects}
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


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A ratio that can be compared with a number.

    `about` are the lengths that the claim names, None if the quantity takes none; `lengths` are
    those behind the ratio.
    """

    label: str
    logs: LogCurve
    lengths: tuple[int, ...]
    about: Lengths | None = None

    @classmethod
    def among(cls, label: str, logs: LogCurve, about: Lengths) -> Self:
        """The ratio at the lengths that the claim names. Raises `OutOfScope` if it has none."""
        chosen = about.among(logs.whole)
        return cls(label=label, logs=logs.at(chosen), lengths=tuple(chosen), about=about)

    @property
    def numbers(self) -> tuple[Number, ...]:
        """The ratio at each length."""
        logs = self.logs
        rows = zip(logs.logs, logs.low, logs.high, logs.lengths, strict=True)
        return tuple(as_ratio(self.label, *row) for row in rows)

    def at(self, lengths: Sequence[int]) -> "Measured":
        """The same ratio at these of its lengths."""
        return replace(self, logs=self.logs.at(lengths), lengths=tuple(lengths))


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """An answer, why, the numbers behind it (the most informative first) and their lengths."""

    answer: Answer
    why: str = ""
    numbers: tuple[Number, ...] = ()
    lengths: tuple[int, ...] = ()


def as_ratio(
    label: str, log: float, low: float, high: float, length: float | None = None
) -> Number:
    """The ratio from its logarithm and the ends of that logarithm's confidence interval."""
    value, low, high = (float(np.exp(end)) for end in (log, low, high))
    at = None if length is None else int(length)
    return Number(what=label, unit=Unit.RATIO, value=value, low=low, high=high, length=at)
