"""What the files of mechanisms and of users declare, read as syntax.

Nothing of a file runs and torch is not loaded, so that completion, errors and plans can name forms
and modules at once.
"""

import ast
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import combinations
from pathlib import Path

from attnbench.errors import UnknownMechanism, UsageError, small_file

PACKAGE = Path(__file__).parents[2]
COMPILED = "compiled"  # the form that every mechanism has besides its own

# common names of parameters of a layer, and what a core takes first
WIDTH = ("width", "dim", "d_model", "embed_dim", "hidden_size")
HEADS = ("heads", "num_heads", "n_heads", "nhead", "n_head")
CORE = ("q", "k", "v")

FILE = re.compile(r"(?P<path>[^\[\]]*\.py)(?P<options>\[.*\])?")
KERNELS = re.compile(r"(?P<mechanism>[a-z]\w*):(?P<path>.+\.py)")


def forms(mechanism: str) -> tuple[str, ...]:
    """The forms of a mechanism of this package, its own before those of packages.

    Empty for another name.
    """
    file = PACKAGE / "mechanisms" / f"{mechanism}.py"
    if not mechanism.isidentifier() or not file.is_file():
        return ()
    own = [form for names in _assigned(file, "CARD", "forms") for form in names]
    packages = [package for package, names in _packages().items() if mechanism in names]
    return (*dict.fromkeys((*own, *packages, COMPILED)),)


def modules(path: Path) -> tuple[str, ...]:
    """The names of the layers, cores and cards in a user's file, in their order.

    Raises `UnknownMechanism` where there is no such file, `UsageError` where it cannot be read.
    """
    body = parsed(path)
    classes = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
    found = []
    for node in body:
        if isinstance(node, ast.Assign) and _makes_card(node.value):
            found += [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.FunctionDef) and _is_measurable(_parameters(node), ()):
            found.append(node.name)
        elif isinstance(node, ast.ClassDef):
            made = _of_class(node, "__init__", classes)
            called = _of_class(node, "forward", classes)
            if _is_measurable(made, called):
                found.append(node.name)
    return tuple(name for name in found if not name.startswith("_"))


def with_module(text: str) -> str:
    """A part of `--models` in which a file that has one module has that module's name.

    `mine.py` and `mine.py[share=0.5]` become `mine.py:Mean` and `mine.py:Mean[share=0.5]`, and
    `transformer:kern.py` becomes `transformer:kern.py:f` if f is the file's one function; other
    texts stay. Raises `UnknownMechanism` if there is no such file, and `UsageError` if it cannot be
    read, or has none or several modules.
    """
    match = FILE.fullmatch(text)
    if match is None:
        return text
    path = match["path"]
    options = match["options"] or ""
    kernels = KERNELS.fullmatch(path)
    if kernels is not None and not Path(path).is_file():
        return f"{path}:{the_function(kernels['path'], path)}{options}"
    if ":" in Path(path).name:
        return text
    found = modules(Path(path))
    if not found:
        raise UsageError(
            f"{path!r} has no class or function that takes a width ({', '.join(WIDTH)}) and heads"
            f" ({', '.join(HEADS)}), or q, k and v first; if another is meant, write {path}:NAME"
        )
    if len(found) > 1:
        first = f"{path}:{found[0]}"
        raise UsageError(
            f"{path!r} has several modules: {', '.join(found)}; write one as {first}, or several as"
            f" {first},{path}:{found[1]}"
        )
    return f"{path}:{found[0]}{options}"


def the_function(path: str, name: str) -> str:
    """The one public function of a file of kernels, which are forms of a mechanism.

    path: of the file.
    name: the file as it was written, after the mechanism: `transformer:kern.py`.
    Raises `UnknownMechanism` if there is no such file, and `UsageError` if it cannot be read, or
    has none or several functions.
    """
    found = [
        node.name
        for node in parsed(Path(path))
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(f"{path!r} has no function; if another name is meant, write {name}:NAME")
    raise UsageError(
        f"{path!r} has several functions: {', '.join(found)}; write one as {name}:{found[0]}"
    )


def parsed(path: Path) -> list[ast.stmt]:
    """The statements of a user's file.

    Raises `UnknownMechanism` where there is no such file, `UsageError` where it cannot be read.
    """
    if not path.is_file():
        raise UnknownMechanism(f"no file {str(path)!r}")
    try:
        return ast.parse(small_file(path)).body
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError) as error:
        line = f"line {error.lineno}: " if isinstance(error, SyntaxError) else ""
        reason = getattr(error, "msg", None) or getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot read {str(path)!r}: {line}{reason}") from error


def file_with_a_comma(text: str) -> str:
    """A file that a list of mechanisms names and whose path has a comma; empty if there is none."""
    pieces = text.split(",")
    for first, last in combinations(range(len(pieces)), 2):
        place, found, _ = ",".join(pieces[first : last + 1]).rpartition(".py")
        path = f"{place}{found}".strip()
        kernels = KERNELS.fullmatch(path)
        for each in (path, kernels["path"] if kernels else ""):
            if "," in each and os.path.isfile(each):  # a text of any length
                return each
    return ""


@cache
def _packages() -> Mapping[str, frozenset[str]]:
    """The mechanisms that each file or folder of `peers` computes, by its name."""
    offered: dict[str, frozenset[str]] = {}
    for place in sorted((PACKAGE / "mechanisms" / "peers").iterdir()):
        files = [place] if place.suffix == ".py" else sorted(place.glob("*.py"))
        names = [name for file in files for keys in _assigned(file, "FORMS") for name in keys]
        if names:
            offered[place.stem] = frozenset(names)
    return offered


def _assigned(file: Path, target: str, argument: str = "") -> Iterator[list[str]]:
    """The keys of dictionaries in the value that a file assigns to a name.

    With `argument` only of the call's argument of that name.
    """
    for node in ast.parse(file.read_bytes()).body:
        if not (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == target):
            continue
        values: list[ast.AST] = [node.value]
        if argument and isinstance(node.value, ast.Call):
            values = [word.value for word in node.value.keywords if word.arg == argument]
        for inner in (inner for value in values for inner in ast.walk(value)):
            if isinstance(inner, ast.Dict):
                keys = [key.value for key in inner.keys if isinstance(key, ast.Constant)]
                yield [key for key in keys if isinstance(key, str)]


def _makes_card(value: ast.expr) -> bool:
    """Whether an expression is a call of `Card`, such as `at.Card(…)`."""
    return isinstance(value, ast.Call) and ast.unparse(value.func).split(".")[-1] == "Card"


def _parameters(function: ast.FunctionDef) -> tuple[str, ...]:
    """The names of a function's parameters, in order."""
    every = function.args
    return tuple(each.arg for each in (*every.posonlyargs, *every.args, *every.kwonlyargs))


def _of_class(
    node: ast.ClassDef, method: str, classes: Mapping[str, ast.ClassDef], depth: int = 0
) -> tuple[str, ...]:
    """The parameters of a method without its first, also of a base class in the same file."""
    for inner in node.body:
        if isinstance(inner, ast.FunctionDef) and inner.name == method:
            return _parameters(inner)[1:]
    for base in node.bases if depth < len(classes) else ():
        if isinstance(base, ast.Name) and base.id in classes:
            found = _of_class(classes[base.id], method, classes, depth + 1)
            if found:
                return found
    return ()


def _is_measurable(taken: tuple[str, ...], called: tuple[str, ...]) -> bool:
    """Whether parameters are those of a layer or of a core; `called`: those of `forward`."""
    is_layer = bool({*taken} & {*WIDTH} and {*taken} & {*HEADS})
    return is_layer or taken[: len(CORE)] == CORE or called[: len(CORE)] == CORE
