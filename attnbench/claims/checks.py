"""Reads a check from the cells of a row of claims.

    predicate  a                  b                  quantity  mode       lengths     value
    less       smart_bird         transformer:eager  time      training   > 256
    less       linformer          local,performer    memory    training   1000,2000
    ratio      transformer:eager  linformer[rank=8]  time      inference  65536       20
    growth     performer                             time      training   1000..4000  <= 2
    crossover  transformer:eager  longformer                   inference              1024..2048
    order      reformer                              memory                           N*log(N) + N*d
    fits       fastformer                                      training   65536

The parameters of a predicate name the columns that it takes, and their types say how each is read.
`mode`, `level` and `device` (a part of its name) restrict any check.
"""

import re
from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from math import inf
from types import MappingProxyType
from typing import Any

from attnbench.claims import predicates as p
from attnbench.claims.bench import CostCurve, Curves
from attnbench.claims.claim import (
    FACTOR,
    NEAR,
    TIME,
    Check,
    ClaimedCost,
    Costs,
    Formula,
    Group,
    Judgement,
    Lengths,
    Range,
)
from attnbench.records import Level, Mode, Selection, option_value

# bounds of numbers and of powers; anything beyond is a mistake
LARGEST, HIGHEST = 1e15, 9.0

PREDICATES: Mapping[str, Callable[..., Judgement]] = MappingProxyType({
    predicate.__name__: predicate
    for predicate in (
        p.less, p.ratio, p.increasing, p.growth, p.crossover, p.order, p.oom, p.fits, p.throughput,
        p.no_causal_form,
    )
})  # fmt: skip

CELLS = ("predicate", "a", "b", "quantity", "mode", "lengths", "value", "level", "device")
SCOPE: Mapping[str, Any] = MappingProxyType({"mode": Mode, "level": Level, "device": str})

OPTION = r"\w+=[^\[\],]+"
SERIES = re.compile(rf"(\w+)(?::(\w+))?(?:\[({OPTION}(?:,{OPTION})*)\])?")
FACTORS = re.compile(r"\*log\((?P<of>\w+)\)|([*/])([^\W\d]\w*)(?:\*\*([\d.]+))?")


class BadCheck(Exception):
    """A row that cannot be read; the message says in which column, and what was expected."""


def read_check(row: Mapping[str, str]) -> Check:
    """The check in the `CELLS` of a row, of which some may be missing. Raises `BadCheck`."""
    cells = {column: cell for column in CELLS if (cell := row.get(column, "").strip())}
    name = cells.pop("predicate", "")
    if name not in PREDICATES:
        raise BadCheck(f"column predicate: {name!r}; expected one of {', '.join(PREDICATES)}")
    own = signature(PREDICATES[name]).parameters
    kinds = {column: parameter.annotation for column, parameter in own.items()} | {**SCOPE}
    for column, parameter in own.items():
        if parameter.default is Parameter.empty and column not in cells:
            raise BadCheck(f"column {column}: empty; {name} needs {READERS[kinds[column]][1]}")
    values = {}
    for column, cell in cells.items():
        if column not in kinds:
            raise BadCheck(f"column {column}: {cell!r}; {name} takes {', '.join(kinds)}")
        read, expected = READERS[kinds[column]]
        try:
            values[column] = read(cell)
        except (ValueError, ZeroDivisionError) as error:
            raise BadCheck(f"column {column}: {cell!r}; expected {expected}") from error
    costs = parse_costs(cells["quantity"]) if "quantity" in cells else (TIME,)
    value = f": {cells.pop('value')}" if "value" in cells else ""
    return Check(
        text=f"{name}({'; '.join(cells.values())}){value}",
        predicate=PREDICATES[name],
        arguments={column: value for column, value in values.items() if column in own},
        subjects=tuple(one for c in ("a", "b") if c in cells for one in parse_group(cells[c])),
        counted=all(cost.counted for cost in costs),
        **{column: value for column, value in values.items() if column in SCOPE},
    )


# each reader takes the text of a cell, and raises ValueError if it cannot read it


def parse_series(text: str) -> Selection:
    """`transformer:eager`, `linformer[rank=128,share=none]`."""
    if (found := SERIES.fullmatch(text)) is None:
        raise ValueError
    pairs = (pair.partition("=") for pair in (found[3] or "").split(",") if pair)
    options = tuple((name, option_value(value)) for name, _, value in pairs)
    return Selection(name=found[1], form=found[2], options=options)


def parse_group(text: str) -> Group:
    """A list of such series, split at commas outside brackets."""
    return tuple(parse_series(part.strip()) for part in re.split(r",(?![^\[]*\])", text))


def parse_costs(text: str) -> Costs:
    """`memory`, of both; `first_token/time`, one of A and one of B."""
    first, slash, second = text.partition("/")
    return ClaimedCost(first), ClaimedCost(second if slash else first)


def parse_number(text: str) -> float:
    """A positive number, or a quotient of two."""
    over, slash, under = text.partition("/")
    value = float(over) / float(under if slash else 1)
    if not 1 / LARGEST <= value <= LARGEST:
        raise ValueError
    return value


def parse_range(text: str) -> Range:
    """`<= 512`, `1024..2048`, or a number, which allows `FACTOR` either way but not across 1."""
    sign, low, high = _ends(text)
    if not sign:
        least, most = (float(low > 1), inf if low >= 1 else 1.0)
        return Range(text=text, low=max(low / FACTOR, least), high=min(low * FACTOR, most))
    return Range(text=text, low=0.0 if "<" in sign else low, high=inf if ">" in sign else high)


def parse_span(text: str) -> tuple[float, float]:
    """`1000..4000`."""
    sign, first, last = _ends(text)
    if sign != "..":
        raise ValueError
    return first, last


def parse_lengths(text: str) -> Lengths:
    """`>= 512`, `512..4096`, `1000,2000`."""
    if not re.search(r"[<>]|\.\.", text):
        return Lengths(text=text, listed=tuple(map(parse_number, text.split(","))))
    sign, low, high = _ends(text)
    low = {"<": 0.0, "<=": 0.0, ">": low + 1}.get(sign, low / NEAR)
    high = {">": inf, ">=": inf, "<": high - 1}.get(sign, high * NEAR)
    return Lengths(text=text, low=low, high=high)


def parse_formula(text: str) -> Formula:
    """A sum of products, reduced to the powers of N and of log N."""
    terms = []
    for term in text.replace(" ", "").split("+"):
        found = list(FACTORS.finditer(f"*{term}"))
        if "".join(factor[0] for factor in found) != f"*{term}":
            raise ValueError
        powers = (float(f[4] or 1) * (-1 if f[2] == "/" else 1) for f in found if f[3] == "N")
        terms.append((sum(powers), float(sum(factor["of"] == "N" for factor in found))))
    if max(abs(power) for term in terms for power in term) > HIGHEST:
        raise ValueError
    return tuple(terms)


def _ends(text: str) -> tuple[str, float, float]:
    """The sign of a range, `..` or nothing, and its ends, which are equal except for `..`."""
    found = re.fullmatch(r"(?:([<>]=?)\s*)?(.+?)(?:\.\.(.+))?", text)
    if found is None or (found[1] and found[3]):
        raise ValueError
    low, high = parse_number(found[2]), parse_number(found[3] or found[2])
    if low > high:
        raise ValueError
    return found[1] or (".." if found[3] else ""), low, high


EXAMPLE = "such as linformer[rank=128] or transformer:eager"
# for each type of parameter its reader, and what an error says was expected
READERS: Mapping[Any, tuple[Callable[[str], Any], str]] = MappingProxyType(
    {
        CostCurve: (parse_series, f"a mechanism {EXAMPLE}"),
        Curves: (parse_group, f"mechanisms separated by commas, {EXAMPLE}"),
        ClaimedCost: (ClaimedCost, f"one of {', '.join(ClaimedCost)}"),
        Costs: (parse_costs, f"one of {', '.join(ClaimedCost)}, or two separated by /, of A and B"),
        Lengths: (parse_lengths, "lengths such as >= 512, 512..4096 or 1000,2000"),
        tuple[float, float]: (parse_span, "two lengths such as 1000..4000"),
        float: (parse_number, "a positive number such as 4096, 1.1 or 9/8"),
        Range: (
            parse_range,
            "12.2 (within a factor of 2), 25/30, >= 2, 2..3 or another such number",
        ),
        Formula: (parse_formula, "a sum of products such as N**2*d or N*log(N)"),
        Mode: (Mode, f"one of {', '.join(Mode)}, or empty if the source does not say"),
        Level: (Level, f"one of {', '.join(Level)}"),
        str: (str, "text"),
    }
)
