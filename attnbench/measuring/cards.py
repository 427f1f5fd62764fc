"""The cards and files of the measured tree, and the cases that requests resolve to."""

import ast
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from attnbench.attention import Card
from attnbench.measuring.server import INSTALLED, Unmeasured
from attnbench.mechanisms import catalogue
from attnbench.mechanisms.catalogue.stacked import stacked
from attnbench.records import Case, Causality, Option, Workload, selection

PACKAGE = Path(__file__).parents[1]
# the parts of this package that belong to a mechanism; the rest only finds and measures it
MECHANISMS = ("attnbench/mechanisms/", "attnbench/attention/")


class Cards:
    """The cards of one source tree, or of this package if `tree` is None.

    `own_only`: only mechanisms of the tree itself count, not those of an installed package.
    """

    def __init__(self, tree: Path | None, own_only: bool) -> None:
        self.tree = tree
        self.own_only = own_only

    def find(self, mechanism: str) -> Card:
        """The tree's card of a mechanism. Raises `Unmeasured`."""
        if self.tree is None:
            return catalogue.card(mechanism)
        if selection.layers(mechanism):
            return stacked(mechanism, self.find)
        path, _, name = mechanism.rpartition(":")
        if name.endswith(".py"):
            return catalogue.card(f"{path}:{self.tree / name}")
        if path.endswith(".py"):
            file = self.tree / path
            if not file.is_file():
                raise Unmeasured("missing", f"there is no file {path}")
            if not hasattr(catalogue.module_of(file), name):
                raise Unmeasured("missing", f"{path} has no {name}")
            return catalogue.card(f"{file}:{name}")
        if mechanism not in catalogue.names():
            raise Unmeasured("missing", f"there is no mechanism {mechanism!r}")
        registered = catalogue.card(mechanism)
        if self.own_only and not (file := origin_of(mechanism)).is_relative_to(self.tree.resolve()):
            elsewhere = f"{mechanism} comes from {file}, which is not in this repository"
            raise Unmeasured("missing", elsewhere)
        return registered

    def resolve(
        self,
        mechanism: str,
        form: str | None,
        options: tuple[tuple[str, Option], ...],
        workload: Workload,
    ) -> tuple[Card, Any, Case]:
        """Card, config and case; without a `form`, of the default one. Raises `Unmeasured`.

        mechanism: a name, `path/to/file.py:NAME`, or a stack of several
        form:      None: the default one of this workload
        options:   names and values that differ from the mechanism's defaults
        workload:  sizes and mode; made causal where it steps or the mechanism always is
        """
        card = self.find(mechanism)
        w = workload
        if w.steps or card.causality is Causality.ALWAYS:
            w = replace(w, causal=True)
        config = card.configure(dict(options))
        if form is None:
            form = card.default_form(config, w)
        if form not in card.forms:
            forms = ", ".join(card.forms)
            raise Unmeasured("missing", f"{mechanism} has no form {form!r}; forms: {forms}")
        if reason := card.refusal(form, config, w):
            raise Unmeasured("unsupported", reason)
        return card, config, Case(mechanism=mechanism, form=form, options=options, workload=w)


def origin_of(mechanism: str) -> Path:
    """The file that a registered mechanism was loaded from."""
    offered = [point.module for point in entry_points(group=catalogue.ENTRY_POINTS, name=mechanism)]
    module_names = (f"attnbench.mechanisms.{mechanism}", *offered)
    loaded = next(sys.modules[name] for name in module_names if name in sys.modules)
    return Path(loaded.__file__ or "/").resolve()


def source_files(tree: Path) -> tuple[str, ...]:
    """Loaded files, and those their functions import when they run; paths relative to the tree.

    The tree's own measuring code stands in for this package's, which measures every tree.
    """
    tree = tree.resolve()
    queue = [module.__file__ for module in [*sys.modules.values()] if hasattr(module, "__file__")]
    files: set[str] = set()
    while queue:
        file = Path(queue.pop() or "").resolve()
        for top in (tree, PACKAGE.parent):
            path = file.relative_to(top).as_posix() if file.is_relative_to(top) else ""
            if path in files or INSTALLED & set(Path(path).parts) or not (tree / path).is_file():
                continue
            files.add(path)
            if path.startswith(MECHANISMS) or not path.startswith("attnbench/"):
                queue += imported_files(tree / path, tree)
    return tuple(sorted(files))


def imported_files(file: Path, tree: Path) -> Iterator[str]:
    """Files of the tree that a file imports anywhere, read without running it."""
    tops = [path for path in map(Path, sys.path) if path.is_relative_to(tree)]
    nodes: list[ast.AST] = []
    with suppress(SyntaxError, ValueError):  # such as the bytes of a compiled module
        nodes += ast.walk(ast.parse(file.read_bytes()))
    for node in nodes:
        match node:
            case ast.Import():
                folders = tops
                names = [alias.name for alias in node.names]
            case ast.ImportFrom(level=up):
                folders = [file.parents[up - 1]] if up else tops
                start = node.module or ""
                names = [start, *(f"{start}.{alias.name}".strip(".") for alias in node.names)]
            case _:
                continue
        for place in (folder / name.replace(".", "/") for folder in folders for name in names):
            candidates = (place.with_suffix(".py"), place / "__init__.py")
            yield from (str(path) for path in candidates if path.is_file())
