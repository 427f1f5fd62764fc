"""The file of a class or function that a user gives by itself, as in a notebook.

Measuring processes read a module from a file. What comes from a file has one; of what was written
in a cell, one is made: its source, that of what it uses from other cells, and the imports and plain
values that these name.
"""

import ast
import builtins
import inspect
import linecache
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from attnbench.errors import UsageError

FOLDER = Path("reports") / "cells"
PLAIN = (bool, int, float, str, type(None))


def file_of(definition: Callable[..., Any]) -> str:
    """A class or function as `--models` names it: `path/to/file.py:NAME`.

    Raises `UsageError` where its source, or that of what it uses, cannot be read.
    """
    name = getattr(definition, "__name__", "")
    try:
        if not name.isidentifier() or name != definition.__qualname__:
            raise LookupError("it has no name of its own at the top of a file or cell")
        origin = getattr(sys.modules.get(definition.__module__), "__file__", None)
        if origin and origin.endswith(".py") and Path(origin).is_file():
            return f"{origin}:{name}"
        text = "\n".join(_lines(definition))
    except (LookupError, AttributeError, OSError, SyntaxError) as error:
        raise UsageError(
            f"--models takes names; the source of {name or definition!r} cannot be read:"
            f" {error}. Write it to a file, in a notebook with %%writefile mine.py, and name it"
            f" 'mine.py:{name or 'NAME'}'"
        ) from error
    return f"{_temporary_file(text, name)}:{name}"


def _temporary_file(text: str, name: str) -> Path:
    """The file with this text, below a folder of its own, so that no other takes its place."""
    file = FOLDER / f"{zlib.crc32(text.encode()):08x}" / f"{name}.py"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {str(file)!r}: {error.strerror}") from error
    return file


def _lines(definition: Callable[..., Any]) -> list[str]:
    """The lines of a file with a class or function and all that it uses.

    Raises `LookupError` where something has no source.
    """
    names = vars(sys.modules[definition.__module__])
    imports: list[str] = ["# made from the cells of a notebook"]
    sources: list[str] = []
    names_seen = set[str]()

    def add(name: str, value: Any) -> None:
        if name in names_seen:
            return
        names_seen.add(name)
        if line := _import(name, value):
            imports.append(line)
            return
        source = _source(name, value)
        for used in _names_read(source):
            if used in names:
                add(used, names[used])
        sources.append(f"\n\n{source}")

    add(definition.__name__, definition)
    return [*imports, *sources, ""]


def _import(name: str, value: Any) -> str:
    """The line that gives this value its name, by an import or as a plain value; or nothing."""
    if isinstance(value, ModuleType):
        return f"import {value.__name__} as {name}"
    if isinstance(value, PLAIN) or (
        isinstance(value, tuple) and all(isinstance(each, PLAIN) for each in value)
    ):
        return f"{name} = {value!r}"
    own_name = getattr(value, "__qualname__", getattr(value, "__name__", ""))
    places = [getattr(value, "__module__", None), "torch", "typing"]
    for place in places:
        module = sys.modules.get(place or "")
        if module and place != "__main__" and getattr(module, own_name or name, None) is value:
            return f"from {place} import {own_name or name} as {name}"
    return ""


def _source(name: str, value: Any) -> str:
    """The text of a class or function of a cell. Raises `LookupError`."""
    functions = [value, *vars(value).values()] if isinstance(value, type) else [value]
    for function in map(inspect.unwrap, filter(inspect.isfunction, functions)):
        text = "".join(linecache.getlines(function.__code__.co_filename))
        for node in ast.parse(text).body if text else ():
            if getattr(node, "name", None) == name:
                decorated = [each.lineno for each in getattr(node, "decorator_list", ())]
                first = min([node.lineno, *decorated])
                return "\n".join(text.splitlines()[first - 1 : node.end_lineno])
    raise LookupError(f"{name!r} is neither of a cell nor of a package")


def _names_read(source: str) -> Iterator[str]:
    """The names that a text reads and Python itself does not have, in order."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and not hasattr(builtins, node.id):
            yield node.id
