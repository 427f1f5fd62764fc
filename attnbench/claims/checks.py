"""The language of checks: Python expressions that are parsed with `ast` and never run.

    faster(smart_bird, transformer.eager, training, N > 256)
    1024 <= crossover(transformer.eager, longformer(window=256), inference) <= 2048
    speedup(linformer(rank=128), transformer.eager, inference, N == 65536) == 20
    order(smart_bird, core_flops) == N**2*d_s + N*K*D
    least_memory(linformer, {local, performer}, training, N in {1000, 2000})
    all(order(m, core_flops) == N for m in {performer, linformer})
    throughput(transformer.flash, unprinted, level=core, on="A100") <= 230
    2.24 <= ratio(latent, grouped_query(kv_heads=1), state, generation, N >= 1) <= 2.26

The functions are those of `costs` and `lengths`, and their signatures define the arguments. One
that returns a `Measured`, or takes a relation or a formula, is compared with a number; every other
is an assertion by itself. `and` joins several, `all` repeats one for each value of a name. `level`
restricts one to a level, and `on` to devices with that text in their names.
"""

import ast
import warnings
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from enum import StrEnum
from inspect import Parameter, Signature, signature
from types import MappingProxyType
from typing import Any, NewType, get_args

from attnbench.claims import costs, lengths
from attnbench.claims.claim import (
    NEAR,
    Call,
    ClaimedCost,
    ClaimedGroup,
    ClaimedMode,
    ClaimedSeries,
    Formula,
    Lengths,
    Measured,
    Relation,
    Sign,
)
from attnbench.records import Level, Mode, Option

# bounds of numbers and of powers; anything beyond is a mistake
LARGEST, HIGHEST = 1e15, 9

DeviceName = NewType("DeviceName", str)

LONGEST = 2_000  # characters of a check; a longer one is a mistake

FUNCTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType({
    function.__name__: function
    for function in (
        costs.faster, costs.less_memory, costs.same, costs.fastest, costs.slowest,
        costs.least_memory, costs.increasing, costs.rises_with, costs.speedup,
        costs.speedup_over_passes, costs.memory_saving, costs.ratio, costs.growth,
        lengths.crossover, lengths.order, lengths.projections_over_core, lengths.oom,
        lengths.fits, lengths.max_length, lengths.throughput, lengths.no_causal_form,
    )
})  # fmt: skip

SIGNS: Mapping[type[ast.cmpop], Sign] = MappingProxyType(
    {ast.Eq: Sign.EQUAL, ast.LtE: Sign.AT_MOST, ast.GtE: Sign.AT_LEAST, ast.Lt: Sign.BELOW}
    | {ast.Gt: Sign.ABOVE}
)

# the arguments that restrict any assertion to a level or a device
SCOPE = (
    Parameter("level", Parameter.KEYWORD_ONLY, default=None, annotation=Level),
    Parameter("on", Parameter.KEYWORD_ONLY, default=None, annotation=DeviceName),
)


class BadCheck(Exception):
    """A check that cannot be read; the message says where, and what was expected."""

    def __init__(self, message: str, node: ast.expr | None = None) -> None:
        position = "" if node is None else f"character {node.col_offset + 1}: "
        super().__init__(position + message)


def read_check(text: str) -> tuple[Call, ...]:
    """The calls of a check, all of which must hold. Raises `BadCheck`."""
    if len(text) > LONGEST:
        raise BadCheck(f"{len(text):,} characters; expected at most {LONGEST:,}")
    try:
        with warnings.catch_warnings():  # warnings of the parser concern code that will run
            warnings.simplefilter("ignore")
            tree = ast.parse(text.strip(), mode="eval").body
        return tuple(_calls(tree))
    except SyntaxError as error:
        raise BadCheck(f"{error.msg}; expected a Python expression") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise BadCheck(f"{error or 'too deeply nested'}; expected a Python expression") from error


def functions(call: Call) -> Iterator[Callable[..., Any]]:
    """The function of a call, and those of calls among its arguments."""
    yield call.function
    for argument in call.arguments.values():
        if isinstance(argument, Call):
            yield from functions(argument)


def _calls(node: ast.expr, repeated: bool = False) -> Iterator[Call]:
    match node:
        case ast.BoolOp(op=ast.And(), values=parts):
            for part in parts:
                yield from _calls(part, repeated)
        case ast.Call(func=ast.Name("all"), args=[ast.GeneratorExp(body, [loop])], keywords=[]):
            match loop:
                case ast.comprehension(ast.Name(name), ast.Set(values), []) if not repeated:
                    for value in values:
                        yield from _calls(_Substitute(name, value).visit(deepcopy(body)), True)
                case _:
                    raise BadCheck("expected one all(… for m in {performer, linformer})", node)
        case ast.Compare(low, [ast.LtE(), ast.LtE()], [ast.Call() as call, high]):
            yield _assertion(call, Sign.WITHIN, (low, high))
        case ast.Compare(ast.Call() as call, [op], [right]) if type(op) in SIGNS:
            yield _assertion(call, SIGNS[type(op)], (right,))
        case ast.Call():
            yield _assertion(node, None, ())
        case _:
            example = "faster(a, b, inference) or speedup(a, b, inference, N == 512) >= 2"
            raise BadCheck(f"expected an assertion such as {example}", node)


def _assertion(node: ast.Call, sign: Sign | None, values: tuple[ast.expr, ...]) -> Call:
    """A call with the numbers or formula that it is compared with, if any."""
    function, arguments = _bound(node, SCOPE)
    level, device = arguments.pop("level", None), arguments.pop("on", None)
    usage = f"expected {_usage(function)}"
    if signature(function).return_annotation is Measured:
        arguments = {"of": Call(function=function, arguments=arguments)}
        function = costs.compare
    context = signature(function).parameters
    if "formula" in context:
        arguments["formula"] = a_formula(values[0]) if sign is Sign.EQUAL else None
        if arguments["formula"] is None:
            raise BadCheck(f"{usage} == a sum of products such as N**2*d or N*log(N)", node)
    elif "relation" in context:
        arguments["relation"] = relation = _relation(sign, values)
        signs = get_args(context["relation"].annotation)[1:] or tuple(Sign)
        if relation is None or relation.sign not in signs:
            forms = ("x <= … <= y" if s is Sign.WITHIN else f"… {s} x" for s in signs)
            raise BadCheck(f"{usage} compared as {', '.join(forms)}, with positive numbers", node)
    elif sign is not None:
        raise BadCheck(f"{usage} without a comparison", node)
    return Call(function=function, arguments=arguments, level=level, device=device)


def _relation(sign: Sign | None, values: tuple[ast.expr, ...]) -> Relation | None:
    numbers = [number for number in map(a_number, values) if number is not None]
    if sign is None or len(numbers) < len(values) or numbers != sorted(numbers):
        return None
    return Relation(sign=sign, values=tuple(numbers))


def _bound(
    node: ast.Call, scope: tuple[Parameter, ...] = ()
) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The function that a call names, and its arguments, read as the signature requires."""
    function = FUNCTIONS.get(node.func.id) if isinstance(node.func, ast.Name) else None
    if function is None:
        given = ast.unparse(node.func)
        raise BadCheck(f"no predicate {given!r}; expected one of {', '.join(FUNCTIONS)}", node)
    parameters = Signature([*_parameters(function), *scope])
    keywords: dict[Any, ast.expr] = {keyword.arg: keyword.value for keyword in node.keywords}
    try:
        if len(keywords) < len(node.keywords):
            raise TypeError("an argument is given twice")
        bound = parameters.bind(*node.args, **keywords)
    except TypeError as error:
        message = f"{function.__name__}: {error}; expected {_usage(function)}"
        raise BadCheck(message, node) from error
    arguments = {}
    for name, value in bound.arguments.items():
        kind = parameters.parameters[name].annotation
        read, expected = KINDS.get(kind, (_measured, "a ratio such as speedup(a, b, inference)"))
        arguments[name] = read(value)
        if arguments[name] is None:
            given = f"{function.__name__}: {name} is {ast.unparse(value)}"
            raise BadCheck(f"{given}; expected {expected}", value)
    return function, arguments


def _measured(node: ast.expr) -> Call | None:
    if not isinstance(node, ast.Call):
        return None
    function, arguments = _bound(node)
    measured = signature(function).return_annotation is Measured
    return Call(function=function, arguments=arguments) if measured else None


def _parameters(function: Callable[..., Any]) -> list[Parameter]:
    """The arguments in the text of a check: neither the bench nor those from around the call."""
    parameters = list(signature(function).parameters.values())[1:]
    return [p for p in parameters if p.kind is not Parameter.KEYWORD_ONLY]


def _usage(function: Callable[..., Any]) -> str:
    """`faster(a, b, mode, [lengths])`."""
    names = (
        parameter.name if parameter.default is Parameter.empty else f"[{parameter.name}]"
        for parameter in _parameters(function)
    )
    return f"{function.__name__}({', '.join(names)})"


class _Substitute(ast.NodeTransformer):
    """Replaces a name by a value."""

    def __init__(self, name: str, value: ast.expr) -> None:
        self.name, self.value = name, value

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.value if node.id == self.name else node


# every reader takes a node of `ast` and returns None if the node is of another kind


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
