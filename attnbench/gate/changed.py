"""Which mechanisms a repository holds, and which of them a change touches.

Files are parsed, never run: a mechanism is a module-level `NAME = Card(…)`, registered by an entry
point, by its path in this package, or not at all. It depends on its file and on the files of the
repository that it imports; files that all mechanisms share are only reported.
"""

import ast
from collections.abc import Iterable, Iterator
from importlib.metadata import entry_points
from pathlib import Path

from attnbench.gate.cases import Compared
from attnbench.gate.worktree import Change
from attnbench.records import Selection
from attnbench.registry import GROUP

OWN = Path("attnbench/mechanisms")
SHARED = ("contract", "records", "registry", "model", "errors")


def changed(base: Path, head: Path, changes: Iterable[Change]) -> tuple[Compared, ...]:
    """The mechanisms that differ between two trees; a renamed file counts under both names."""
    touched = [c for c in changes if (c.head or c.base or "").endswith(".py")]
    known = {change.head for change in touched}
    edited = {change.head for change in touched if change.head and change.head == change.base}
    for path in card_files(head):
        if path not in known and depends(head, path, edited):
            touched.append(Change(base=path, head=path))
    compared = dict.fromkeys(pair for change in touched for pair in pairs(base, head, change))
    return tuple(sorted(compared, key=lambda pair: pair.selection.name))


def pairs(base: Path, head: Path, change: Change) -> Iterator[Compared]:
    """The mechanisms on the two sides of a changed file, matched by the name of the card.

    A side that does not parse is taken to hold those of the other: they fail, and are not removed.
    """
    before = cards(base, change.base) if change.base else ()
    after = cards(head, change.head, also=before or ()) if change.head else ()
    before, after = (after if before is None else before), (before if after is None else after)
    before, after = before or (), after or ()
    for card in dict.fromkeys((*before, *after)):
        yield Compared(
            base=named(change.base, card) if change.base and card in before else None,
            head=named(change.head, card) if change.head and card in after else None,
        )


def shared(changes: Iterable[Change]) -> tuple[str, ...]:
    """Changed files that every mechanism uses; they select no mechanism."""
    paths = {f"attnbench/{name}.py" for name in SHARED}
    return tuple(sorted({c.head or c.base or "" for c in changes} & paths))


def card_files(tree: Path) -> Iterator[str]:
    """Files that may hold a card, relative to the tree; hidden folders are left out."""
    for path in sorted(tree.rglob("*.py")):
        relative = path.relative_to(tree)
        hidden = any(part.startswith(".") for part in relative.parts)
        if not hidden and b"Card(" in path.read_bytes():
            yield relative.as_posix()


def cards(tree: Path, path: str, also: Iterable[str] = ()) -> tuple[str, ...] | None:
    """Names of the cards in a file, and those of `also` it binds; None if it does not parse."""
    if (module := parsed(tree, path)) is None:
        return None
    if Path(path).parent == OWN:
        return ("CARD",) if Path(path).stem != "__init__" else ()
    bound: dict[str, ast.expr | None] = {}
    for node in module.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                bound[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=value):
                bound[name] = value
    return tuple(name for name, value in bound.items() if name in also or makes_card(value))


def makes_card(value: ast.expr | None) -> bool:
    """Whether an expression is a call of `Card`."""
    match value:
        case ast.Call(func=ast.Name(id="Card") | ast.Attribute(attr="Card")):
            return True
    return False


def named(path: str, card: str) -> Selection:
    """The name that `--models` takes: the registered one, or `path.py:NAME`."""
    if Path(path).parent == OWN and card == "CARD":
        return Selection(name=Path(path).stem)
    module = path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__")
    for point in entry_points(group=GROUP):
        if (point.module, point.attr) == (module.replace("/", "."), card):
            return Selection(name=point.name)
    return Selection(name=f"{path}:{card}")


def parsed(tree: Path, path: str) -> ast.Module | None:
    """The syntax tree of a file; None if it cannot be read or parsed."""
    try:
        return ast.parse((tree / path).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None


def depends(tree: Path, path: str, touched: set[str]) -> bool:
    """Whether the file, or a file of the tree that it imports, was touched."""
    seen: set[str] = set()
    queue = [path]
    while queue:
        file = queue.pop()
        if file in touched:
            return True
        seen.add(file)
        queue += [other for other in imported(tree, file) if other not in seen]
    return False


def imported(tree: Path, path: str) -> Iterator[str]:
    """Files of the tree that the file imports, without those that all mechanisms share."""
    if (module := parsed(tree, path)) is None:
        return
    for node in ast.walk(module):
        match node:
            case ast.Import():
                names = [alias.name for alias in node.names]
            case ast.ImportFrom(level=0, module=str(name)):
                names = [name, *(f"{name}.{alias.name}" for alias in node.names)]
            case ast.ImportFrom(level=up):
                package = ".".join(Path(path).parent.parts[: len(Path(path).parts) - up])
                stem = f"{package}.{node.module}" if node.module else package
                names = [stem, *(f"{stem}.{alias.name}" for alias in node.names)]
            case _:
                continue
        for name in names:
            yield from _files(tree, name, Path(path).parent.as_posix())


def _files(tree: Path, module: str, folder: str) -> Iterator[str]:
    parts = module.split(".")
    if parts[0] == "attnbench" and (len(parts) < 3 or parts[1] != "mechanisms"):
        return
    for top in dict.fromkeys(("", "src/", "" if folder == "." else f"{folder}/")):
        for end in (".py", "/__init__.py"):
            path = top + "/".join(parts) + end
            if (tree / path).is_file():
                yield path
