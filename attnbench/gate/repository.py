"""A repository as git describes it: a revision in a temporary folder, and mechanisms that differ.

Files are parsed, never run: a mechanism is a module-level `NAME = Card(…)`, registered by an entry
point, by its path in this package, or not at all. It depends on its file and on the files of the
repository that it imports; files that all mechanisms share are only reported.
"""

import ast
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

from attnbench.catalogue.registry import GROUP
from attnbench.errors import CannotRun, UsageError
from attnbench.gate.cases import Compared
from attnbench.records import Selection
from attnbench.store.scratch import PREFIX, Scratch

# set by a hook that calls attnbench, for the repository and index of the hook
HOOK_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")

TREE = "tree"  # the worktree's folder inside a scratch folder

SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


@dataclass(frozen=True, kw_only=True)
class Change:
    """A file that differs; one of the paths is None where a side has no such file."""

    base: str | None
    head: str | None


def git(*arguments: str, cwd: Path, check: bool = True, timeout_s: float | None = None) -> str:
    """The output of git. Raises `CannotRun` with the message of git, or if it takes too long."""
    environment = {name: value for name, value in os.environ.items() if name not in HOOK_VARIABLES}
    # the hooks of the repository are not meant for a temporary worktree
    command = ["git", "-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false", *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=environment,
            capture_output=True,
            check=False,
            start_new_session=True,  # Ctrl-C must not stop git from cleaning up
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as error:
        raise CannotRun(f"git {arguments[0]} took longer than --budget allows; raise it") from error
    except FileNotFoundError as error:
        raise CannotRun("comparing revisions needs git, which is not installed") from error
    if check and done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise CannotRun(f"git {arguments[0]} failed: {lines[-1]}")
    return done.stdout.decode(errors="surrogateescape")


def root(folder: Path) -> Path:
    """The top folder of the repository. Raises `UsageError` outside of one."""
    if not (path := git("rev-parse", "--show-toplevel", cwd=folder, check=False).strip()):
        raise UsageError(f"'{folder}' is not in the working tree of a git repository")
    return Path(path)


def top(folder: Path) -> Path:
    """The repository's top folder, or the folder itself outside of a repository."""
    try:
        return root(folder)
    except (UsageError, CannotRun):
        return folder


def commit(repository: Path, revision: str) -> str:
    """The full hash of a commit. Raises `UsageError` saying how to get a missing one."""
    arguments = ("rev-parse", "--verify", "--quiet", "--end-of-options", revision + "^{commit}")
    if name := git(*arguments, cwd=repository, check=False).strip():
        return name
    shallow = git("rev-parse", "--is-shallow-repository", cwd=repository, check=False).strip()
    hint = (
        "this clone is shallow: fetch it first, e.g. actions/checkout with fetch-depth: 0"
        if shallow == "true"
        else "give a branch, tag or commit of this repository, or fetch it first"
    )
    raise UsageError(f"--base {revision!r} is not a commit of this repository; {hint}")


def describe(repository: Path) -> str:
    """The working tree in words: its commit, and whether it has uncommitted changes."""
    name = git("rev-parse", "--short", "HEAD", cwd=repository, check=False).strip() or "no commit"
    dirty = git("status", "--porcelain", cwd=repository).strip()
    return f"the working tree at {name}" + (" with uncommitted changes" if dirty else "")


def changes(repository: Path, base: str) -> tuple[Change, ...]:
    """Files of the working tree that differ from base, without those that git ignores."""
    listed = git("diff", "--name-status", "--find-renames", "-z", base, "--", cwd=repository)
    words = iter(listed.split("\0"))
    differing = []
    for status in filter(None, words):
        old = next(words)
        new = next(words) if status[0] in "RC" else old  # renamed or copied
        base_path = None if status[0] in "AC" else old
        differing.append(Change(base=base_path, head=None if status[0] == "D" else new))
    known = {change.head for change in differing}
    new_files = git("ls-files", "--others", "--exclude-standard", "-z", cwd=repository)
    added = [path for path in new_files.split("\0") if path and path not in known]
    return (*differing, *(Change(base=None, head=path) for path in added))


@contextmanager
def worktree(repository: Path, revision: str, timeout_s: float | None = None) -> Iterator[Path]:
    """The revision checked out in a temporary folder, which is always removed again.

    Raises `CannotRun` if it cannot be checked out, or not within `timeout_s`.
    """
    scratch = Scratch()
    sweep_up(repository)
    tree = scratch.folder / TREE
    try:
        add = ("worktree", "add", "--detach", "--quiet", str(tree), revision)
        git(*add, cwd=repository, timeout_s=timeout_s)
        yield tree
    finally:
        with ignoring_signals():
            remove(repository, tree)
            scratch.close()


def sweep_up(repository: Path) -> None:
    """Make git forget worktrees that killed checks have left and whose folders are gone."""
    listed = git("worktree", "list", "--porcelain", "-z", cwd=repository, check=False)
    for line in listed.split("\0"):
        tree = Path(line.removeprefix("worktree "))
        ours = line.startswith("worktree ") and tree.name == TREE
        if ours and tree.parent.name.startswith(PREFIX) and not tree.parent.exists():
            remove(repository, tree)


def remove(repository: Path, tree: Path) -> None:
    """Remove a worktree, even one that git has not finished creating."""
    git("worktree", "unlock", str(tree), cwd=repository, check=False)
    git("worktree", "remove", "--force", str(tree), cwd=repository, check=False)
    shutil.rmtree(tree, ignore_errors=True)
    if str(tree) in git("worktree", "list", "--porcelain", cwd=repository, check=False):
        git("worktree", "prune", cwd=repository, check=False)


@contextmanager
def ignoring_signals() -> Iterator[None]:
    """Ignore signals during the block, which cleans up before the end that they ask for."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


OWN = Path("attnbench/mechanisms")
SHARED = ("attention/", "catalogue/", "records/", "errors.py")


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
    paths = {change.head or change.base or "" for change in changes}
    rooms = tuple(f"attnbench/{name}" for name in SHARED)
    return tuple(sorted(path for path in paths if path.startswith(rooms)))


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
