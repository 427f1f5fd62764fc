"""Benchmarks that a change itself changes: both sides run head's, so that only its code differs.

A function is a benchmark if its file is one of tests or benchmarks by its name or folder. What base
alone has must be asked for before head's files are laid over base's.
"""

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from attnbench.commands.check.cases import BASE, HEAD, Trees
from attnbench.commands.check.measuring import Runner
from attnbench.commands.check.reach import file_of
from attnbench.records import MISSING, messages, units

FIND_TIMEOUT_S = 120.0  # to import a module, or to collect all tests

LOADED = ("conftest.py", "__init__.py", "pytest.ini", ".pytest.ini")  # by pytest itself

FOLDER = re.compile(r"(?:[^/]+/)*?(?:tests?|benchmarks?)(?=/)")
FILE = re.compile(r"(?:.*/)?(?:(?:test|bench|benchmark)_[^/]*|[^/]*_(?:test|bench|benchmark))\.py")


def to_lay_over(
    names: Iterable[str], trees: Trees, folder: str, changes: Sequence[str]
) -> tuple[str, ...]:
    """The changed files of the benchmarks that these functions are.

    `folder`, relative to the tree, is where the names were given; `changes` are paths of files that
    differ.
    """
    tops = {
        belongs
        for name in names
        for tree in (trees[HEAD], trees[BASE])
        if (belongs := benchmark(file_of(name, tree, folder)))
    }
    return tuple(
        path
        for path in changes
        if "__pycache__" not in path
        and any(path == top or path.startswith(f"{top}/") for top in tops)
    )


def lay_over(paths: Sequence[str], trees: Trees) -> tuple[str, ...]:
    """Copy these files from head's tree to base's, and remove there what pytest would still load.

    A `conftest.py` that stays on base alone would be a change of its tests; other files that head
    has no more do nothing unless base's own code imports them. Returned: a sentence on those that
    were copied or removed, if any.
    """
    copied = [path for path in paths if copy(trees[HEAD] / path, trees[BASE] / path, trees[BASE])]
    removed = [
        path
        for path in paths
        if Path(path).name in LOADED
        and not os.path.lexists(trees[HEAD] / path)
        and remove(trees[BASE] / path, trees[BASE])
    ]
    texts = []
    if copied:
        ran = f"both sides ran head's {units.few(copied, 3)}"
        texts.append(f"{ran}, whose own changes are not compared")
    if removed:
        texts.append(f"base ran without its {units.few(removed, 3)}, which head lacks")
    return (f"the benchmark itself differs: {'; '.join(texts)}",) if texts else ()


def functions_on_base(
    names: Iterable[str], paths: Sequence[str], trees: Trees, folder: str, runner: Runner
) -> tuple[frozenset[str], tuple[str, ...]]:
    """Which functions base has, of those whose file will be laid over.

    Head may have them no more, which base with head's files could not tell. Also returned: a
    sentence for each function of which base did not say whether it has it.

    names: of the functions.
    paths: of the files of head that will be laid over base's, relative to the repository.
    trees: of both sides.
    folder: where the names were given, relative to the repository.
    runner: of the measuring processes.
    """
    overlaid = [name for name in names if file_of(name, trees[BASE], folder) in paths]
    if not overlaid:
        return frozenset(), ()
    with runner.loaded_process(BASE, trees[BASE]) as worker:
        answers = {
            name: worker.ask(messages.HasFunction(mechanism=name), FIND_TIMEOUT_S)
            for name in overlaid
        }
    on_base = frozenset(
        name for name, answer in answers.items() if isinstance(answer, messages.Done)
    )
    silent = (
        f"whether base has {name} is not known: {answer.reason}"
        for name, answer in answers.items()
        if isinstance(answer, messages.Failure) and answer.outcome != MISSING
    )
    return on_base, tuple(silent)


def tests_on_base(trees: Trees, runner: Runner) -> tuple[frozenset[str], tuple[str, ...]]:
    """The names of the tests that base's own files have, as the user's options choose them.

    Also returned: a sentence where base did not say.
    """
    with runner.loaded_process(BASE, trees[BASE]) as worker:
        answer = worker.ask(messages.CollectTests(), FIND_TIMEOUT_S)
    if isinstance(answer, messages.TestNames):
        return frozenset(answer.tests), ()
    return frozenset(), (f"which tests base alone has is not known: {answer.reason}",)


def benchmark(file: str) -> str:
    """The folder of benchmarks that holds a file, or the file, if it is one; else nothing."""
    if within := FOLDER.match(file):
        return within[0]
    return file if FILE.fullmatch(file) else ""


def copy(source: Path, target: Path, tree: Path) -> bool:
    """Copy a file into a tree, if it is one and lands there."""
    existing = next(path for path in (target.parent, *target.parents) if path.exists())
    if not source.is_file() or not existing.is_dir() or not lands_in(existing, tree):
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    shutil.copyfile(source, target)
    return True


def remove(target: Path, tree: Path) -> bool:
    """Remove a file or link from a tree, if it is one and lies there."""
    if target.is_dir() and not target.is_symlink():
        return False
    if not os.path.lexists(target) or not lands_in(target.parent, tree):
        return False
    target.unlink()
    return True


def lands_in(folder: Path, tree: Path) -> bool:
    """Whether what is written into a folder is written into the tree, links followed."""
    return folder.resolve().is_relative_to(tree.resolve())
