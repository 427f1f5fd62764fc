"""The arguments of a check: how each kind of parameter is read.

Every reader takes a node of `ast` and returns None if the node is of another kind.
"""

import ast
from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NewType

from attnbench.claims.claim import (
    NEAR,
    ClaimedCost,
    ClaimedGroup,
    ClaimedMode,
    ClaimedSeries,
    Formula,
    Lengths,
)
from attnbench.records import Level, Mode, Option

# bounds of numbers and of powers; anything beyond is a mistake
LARGEST, HIGHEST = 1e15, 9

DeviceName = NewType("DeviceName", str)


def a_number(node: ast.expr) -> float | None:
    """A positive number, or a quotient of two."""
    match node:
        case ast.Constant(int() | float() as value) if not isinstance(value, bool):
            return float(value) if 1 / LARGEST <= value <= LARGEST else None
        case ast.BinOp(left, ast.Div(), right):
            over, under = a_number(left), a_number(right)
            return over / under if over and under else None
    return None


def a_formula(node: ast.expr) -> Formula | None:
    """A sum of products, reduced to the powers of N and log N."""
    match node:
        case ast.BinOp(left, ast.Add(), right):
            first, second = a_formula(left), a_formula(right)
            terms = first.terms + second.terms if first and second else ()
        case _:
            powers = _powers(node, 1)
            terms = (powers,) if powers and max(map(abs, powers)) <= HIGHEST else ()
    return Formula(text=ast.unparse(node), terms=terms) if terms else None


def _powers(node: ast.expr, sign: int) -> tuple[float, float] | None:
    """The powers of N and of log N in a product."""
    match node:
        case ast.BinOp(left, ast.Mult() | ast.Div() as op, right):
            right_sign = sign if isinstance(op, ast.Mult) else -sign
            parts = [_powers(left, sign), _powers(right, right_sign)]
            known = [part for part in parts if part]
            return (sum(p for p, _ in known), sum(p for _, p in known)) if all(parts) else None
        case ast.BinOp(ast.Name(symbol), ast.Pow(), right) if power := a_number(right):
            return sign * power * (symbol == "N"), 0.0
        case ast.Call(ast.Name("log"), [ast.Name(symbol)], []) if sign > 0:
            return 0.0, float(symbol == "N")
        case ast.Name(symbol):
            return float(sign * (symbol == "N")), 0.0
    return None


def _subject(node: ast.expr) -> ClaimedSeries | None:
    named, keywords = node, list[ast.keyword]()
    if isinstance(node, ast.Call):
        named, keywords = node.func, node.keywords
        if node.args or not keywords:
            return None
    options = tuple((str(k.arg), _options(k.value)) for k in keywords)
    if not all(k.arg and values for k, (_, values) in zip(keywords, options, strict=True)):
        return None
    match named:
        case ast.Name(mechanism):
            return ClaimedSeries(mechanism=mechanism, options=options)
        case ast.Attribute(ast.Name(mechanism), form):
            return ClaimedSeries(mechanism=mechanism, form=form, options=options)
    return None


def _options(node: ast.expr) -> tuple[Option, ...]:
    """The values of an option, any of which matches; none if one is not a value."""
    nodes = node.elts if isinstance(node, ast.Set) else [node]
    words: Mapping[str, Option] = {"true": True, "false": False, "none": None}
    values = list[Option]()
    for value in nodes:
        match value:
            case ast.Constant(str() | int() | float() | None as constant):
                values.append(constant)
            case ast.Name(word):  # as in `--models`
                values.append(words.get(word, word))
    return tuple(values) if len(values) == len(nodes) else ()


def _group(node: ast.expr) -> ClaimedGroup | None:
    names = list(map(_name, node.elts)) if isinstance(node, ast.Set) else []
    members = tuple(name for name in names if name)
    return ClaimedGroup(members) if members and all(names) else None


def _lengths(node: ast.expr) -> Lengths | None:
    text = ast.unparse(node)
    match node:
        case ast.Compare(ast.Name("N"), [ast.In()], [ast.Set(values)]):
            listed = tuple(filter(None, map(_length, values)))
            return Lengths(text=text, listed=listed) if len(listed) == len(values) else None
        case ast.Compare(left, [ast.LtE(), ast.LtE()], [ast.Name("N"), right]):
            low, high = _length(left) or 0, _length(right) or 0
            return Lengths(text=text, low=low / NEAR, high=high * NEAR) if 0 < low <= high else None
        case ast.Compare(ast.Name("N"), [op], [right]) if n := _length(right):
            ends: dict[type[ast.cmpop], dict[str, Any]] = {
                ast.Eq: {"listed": (n,)},
                ast.GtE: {"low": n / NEAR},
                ast.Gt: {"low": n + 1},
                ast.LtE: {"high": n * NEAR},
                ast.Lt: {"high": n - 1},
            }
            return Lengths(text=text, **ends[type(op)]) if type(op) in ends else None
    return None


def _length(node: ast.expr) -> int | None:
    match node:
        case ast.Constant(int() as value) if not isinstance(value, bool) and 0 < value <= LARGEST:
            return value
    return None


def _word(kind: type[StrEnum]) -> Callable[[ast.expr], StrEnum | None]:
    return lambda node: kind(name) if (name := _name(node)) in set(kind) else None


def _name(node: ast.expr) -> str | None:
    return node.id if isinstance(node, ast.Name) else None


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


# for each type of parameter its reader, and what an error says was expected
KINDS: Mapping[Any, tuple[Callable[[ast.expr], Any], str]] = MappingProxyType(
    {
        ClaimedSeries: (_subject, "a mechanism such as linformer(rank=128) or transformer.eager"),
        ClaimedGroup: (_group, "mechanisms in braces such as {linformer, performer}"),
        Mode: (_word(ClaimedMode), f"one of {', '.join(ClaimedMode)}"),
        ClaimedCost: (_word(ClaimedCost), f"one of {', '.join(ClaimedCost)}"),
        Lengths: (_lengths, "lengths such as N >= 512, 512 <= N <= 4096 or N in {1000, 2000}"),
        int: (_length, "a whole number of tokens"),
        str: (_name, "the name of an option"),
        Level: (_word(Level), f"one of {', '.join(Level)}"),
        DeviceName: (_text, 'a text such as "V100"'),
    }
)
