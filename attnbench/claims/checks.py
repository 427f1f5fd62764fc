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

Claims are rows of a CSV file, each with its check.
"""

import ast
import csv
import io
import warnings
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from inspect import Parameter, Signature, signature
from types import MappingProxyType
from typing import Any, get_args

from attnbench.claims import costs, lengths
from attnbench.claims.arguments import KINDS, DeviceName, a_formula, a_number
from attnbench.claims.claim import Call, Claim, Measured, Relation, Sign
from attnbench.claims.published import shipped_text
from attnbench.errors import BadClaims
from attnbench.records import Level

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


COLUMNS = ("id", "source", "claim", "check", "scope")
NEEDED = ("id", "claim", "check")


def shipped() -> tuple[Claim, ...]:
    """The claims that the package ships."""
    return read_claims(shipped_text("claims.csv"), "claims.csv")


def read_claims(text: str, name: str) -> tuple[Claim, ...]:
    """The claims of a CSV text with the columns `COLUMNS`, in any order.

    Raises `BadClaims` with a line for each row that cannot be read; `name` is the name of the file.
    """
    rows = csv.DictReader(io.StringIO(text, newline=""))
    claims, problems, lines = list[Claim](), list[str](), dict[str, int]()
    try:
        if sorted(rows.fieldnames or ()) != sorted(COLUMNS):
            raise BadClaims([f"{name}, line 1: expected the columns {', '.join(COLUMNS)}"])
        line = rows.line_num + 1
        for row in rows:
            try:
                claim = _claim(row)
                if claim.id in lines:
                    twice = f"column id: {claim.id!r} is also the id in line {lines[claim.id]}"
                    raise BadCheck(f"{twice}; give each claim a different one")
                lines[claim.id] = line
                claims.append(claim)
            except BadCheck as error:
                problems.append(f"{name}, line {line}, {error}")
            line = rows.line_num + 1
    except csv.Error as error:
        problems.append(
            f"{name}, line {rows.line_num + 1}: {error}; expected comma-separated values"
        )
    if not claims and not problems:
        problems = [f"{name} has no claims; expected one per row below the column names"]
    if problems:
        raise BadClaims(problems)
    return tuple(claims)


def _claim(row: Mapping[str | None, Any]) -> Claim:
    if None in row or None in row.values():
        raise BadCheck(f"columns: expected {len(COLUMNS)}; quote a cell that has commas")
    for column in NEEDED:
        if not row[column].strip():
            raise BadCheck(f"column {column}: empty; expected text")
    try:
        check = read_check(row["check"])
    except BadCheck as error:
        raise BadCheck(f"column check of {row['id']!r}: {error}") from error
    texts = {column: row[column] for column in COLUMNS if column != "check"}
    return Claim(**texts, text=row["check"], check=check)
