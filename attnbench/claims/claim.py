"""What a claim's check is made of once it is parsed; the text of each node parses to the same."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from attnbench.records import Level, Option


class Asked(StrEnum):
    """How a source measured; no sweep has the last two."""

    INFERENCE = "inference"
    TRAINING = "training"
    UNPRINTED = "unprinted"  # the source does not say: every mode of the sweep is judged
    GENERATION = "generation"


class Sign(StrEnum):
    """How the two sides of a relation, or a length and its bounds, stand to each other."""

    EQUAL = "="
    AT_MOST = "<="
    AT_LEAST = ">="
    BELOW = "<"
    ABOVE = ">"
    WITHIN = "in"
    AT = "at"  # of lengths alone, as is the next
    ONE_OF = "one of"


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A mechanism as a claim names it; of each option any of the values will do."""

    mechanism: str
    form: str | None = None
    options: tuple[tuple[str, tuple[Option, ...]], ...] = ()

    def __str__(self) -> str:
        pairs = ", ".join(f"{name}={_braced(values)}" for name, values in self.options)
        form = f":{self.form}" if self.form else ""
        return self.mechanism + form + (f"[{pairs}]" if pairs else "")


@dataclass(frozen=True, kw_only=True)
class Group:
    """`@name`, or the members themselves, without some."""

    name: str = ""
    members: tuple[str, ...] = ()
    minus: tuple[str, ...] = ()

    def __str__(self) -> str:
        whole = self.name or _listed(self.members)
        return whole + (f" minus {_listed(self.minus)}" if self.minus else "")


@dataclass(frozen=True, kw_only=True)
class Value:
    """A number, or the quotient of two."""

    over: float
    under: float | None = None

    def __float__(self) -> float:
        return self.over / (1.0 if self.under is None else self.under)

    def __str__(self) -> str:
        return number(self.over) + ("" if self.under is None else f"/{number(self.under)}")


@dataclass(frozen=True, kw_only=True)
class Relation:
    """What a quantity is compared with; `WITHIN` has two values, all others one."""

    sign: Sign
    values: tuple[Value, ...]

    def __str__(self) -> str:
        if self.sign is Sign.WITHIN:
            return f"in [{', '.join(map(str, self.values))}]"
        return f"{self.sign} {self.values[0]}"


@dataclass(frozen=True, kw_only=True)
class Factor:
    """A symbol to a power, or its logarithm; a negative power stands under the line."""

    symbol: str
    power: float = 1.0
    log: bool = False

    def __str__(self) -> str:
        power = "" if abs(self.power) == 1 else f"^{number(abs(self.power))}"
        return f"log({self.symbol})" if self.log else self.symbol + power


@dataclass(frozen=True, kw_only=True)
class Formula:
    """A sum of products: the order of a cost."""

    terms: tuple[tuple[Factor, ...], ...]

    def __str__(self) -> str:
        return "= " + " + ".join(map(self._term, self.terms))

    @staticmethod
    def _term(factors: tuple[Factor, ...]) -> str:
        first, *others = factors
        return str(first) + "".join(f"{'/' if f.power < 0 else '*'}{f}" for f in others)


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """The lengths that a claim speaks of."""

    sign: Sign
    values: tuple[int, ...]

    def __str__(self) -> str:
        match self.sign:
            case Sign.AT:
                return f"at {self.values[0]}"
            case Sign.ONE_OF:
                return f"for length in {_listed(self.values)}"
            case Sign.WITHIN:
                return f"for length in {self.values[0]}..{self.values[1]}"
        return f"for length {self.sign} {self.values[0]}"


@dataclass(frozen=True, kw_only=True)
class Each:
    """A name that stands for each of several values."""

    name: str
    values: tuple[Option, ...]

    def __str__(self) -> str:
        return f"for each {self.name} in {_listed(self.values)}"


@dataclass(frozen=True, kw_only=True)
class Call:
    """A predicate or quantity with its arguments, in the order of its signature."""

    name: str
    arguments: tuple["Argument", ...]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.arguments))})"


Argument = Subject | Group | Asked | Call | int | str


@dataclass(frozen=True, kw_only=True)
class Clause:
    """One assertion."""

    call: Call
    relation: Relation | Formula | None = None
    lengths: Lengths | None = None
    level: Level | None = None
    device: str | None = None
    each: Each | None = None

    def __str__(self) -> str:
        level = f"at level {self.level}" if self.level else None
        device = f'on "{self.device}"' if self.device else None
        parts = (self.call, self.relation, self.lengths, level, device, self.each)
        return " ".join(str(part) for part in parts if part is not None)

    @property
    def expanded(self) -> tuple["Clause", ...]:
        """The clause once for each value of `each`."""
        if self.each is None:
            return (self,)
        name, bare = self.each.name, replace(self, each=None)
        return tuple(replace(bare, call=_with(self.call, name, v)) for v in self.each.values)


@dataclass(frozen=True, kw_only=True)
class Check:
    """Everything that one claim asserts; all of it must hold."""

    clauses: tuple[Clause, ...]

    def __str__(self) -> str:
        return " and ".join(map(str, self.clauses))

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Every mechanism named, each once; members of named groups are not among them."""
        calls = [call for clause in self.clauses for c in clause.expanded for call in _calls(c)]
        return tuple(dict.fromkeys(name for call in calls for name in _named(call)))


def number(value: float) -> str:
    """The shortest text that reads as the same number."""
    return str(int(value)) if value == int(value) else repr(value)


def _word(value: Option) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else number(value)


def _listed(values: tuple[Option, ...]) -> str:
    return "{" + ", ".join(map(_word, values)) + "}"


def _braced(values: tuple[Option, ...]) -> str:
    return _word(values[0]) if len(values) == 1 else _listed(values)


def _with(call: Call, name: str, value: Option) -> Call:
    """The call with every subject or option called `name` replaced by the value."""

    def put(argument: Argument) -> Argument:
        match argument:
            case Call():
                return _with(argument, name, value)
            case Subject(mechanism=mechanism, options=options):
                pairs = tuple(
                    (key, tuple(value if v == name else v for v in values))
                    for key, values in options
                )
                named = str(value) if mechanism == name else mechanism
                return replace(argument, mechanism=named, options=pairs)
        return argument

    return replace(call, arguments=tuple(map(put, call.arguments)))


def _calls(clause: Clause) -> Iterator[Call]:
    yield clause.call
    yield from (a for a in clause.call.arguments if isinstance(a, Call))


def _named(call: Call) -> Iterator[str]:
    for argument in call.arguments:
        match argument:
            case Subject(mechanism=mechanism):
                yield mechanism
            case Group(members=members):
                yield from members
