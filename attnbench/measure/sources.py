"""The files of a source tree that this process has loaded for a mechanism."""

import ast
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
INSTALLED = frozenset({"site-packages", "dist-packages"})
# the parts of this package that belong to a mechanism; the rest only finds and measures it
MECHANISMS = ("attnbench/mechanisms/", "attnbench/attention/")


def sources(tree: Path) -> tuple[str, ...]:
    """Loaded files, and those their functions import when they run; paths relative to the tree.

    The tree's own measuring code stands in for this package's, which measures every tree.
    """
    tree = tree.resolve()
    queue = [module.__file__ for module in [*sys.modules.values()] if hasattr(module, "__file__")]
    found: set[str] = set()
    while queue:
        file = Path(queue.pop() or "").resolve()
        for top in (tree, PACKAGE.parent):
            path = file.relative_to(top).as_posix() if file.is_relative_to(top) else ""
            if path in found or INSTALLED & set(Path(path).parts) or not (tree / path).is_file():
                continue
            found.add(path)
            if path.startswith(MECHANISMS) or not path.startswith("attnbench/"):
                queue += imported(tree / path, tree)
    return tuple(sorted(found))


def imported(file: Path, tree: Path) -> Iterator[str]:
    """Files of the tree that a file imports anywhere, read without running it."""
    tops = [path for path in map(Path, sys.path) if path.is_relative_to(tree)]
    nodes: list[ast.AST] = []
    with suppress(SyntaxError, ValueError):  # such as the bytes of a compiled module
        nodes += ast.walk(ast.parse(file.read_bytes()))
    for node in nodes:
        match node:
            case ast.Import():
                folders, names = tops, [alias.name for alias in node.names]
            case ast.ImportFrom(level=up):
                folders = [file.parents[up - 1]] if up else tops
                start = node.module or ""
                names = [start, *(f"{start}.{alias.name}".strip(".") for alias in node.names)]
            case _:
                continue
        for place in (folder / name.replace(".", "/") for folder in folders for name in names):
            found = (place.with_suffix(".py"), place / "__init__.py")
            yield from (str(path) for path in found if path.is_file())
