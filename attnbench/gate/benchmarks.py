"""Benchmarks that a change itself changes: both sides run head's, so that only its code differs.

A function is a benchmark if its file is one of tests or benchmarks by its name or folder.
"""

import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from attnbench.gate.cases import BASE, HEAD, Trees
from attnbench.gate.reach import file_of
from attnbench.units import few

FOLDER = re.compile(r"(?:[^/]+/)*?(?:tests?|benchmarks?)(?=/)")
FILE = re.compile(r"(?:.*/)?(?:(?:test|bench|benchmark)_[^/]*|[^/]*_(?:test|bench|benchmark))\.py")


def lay_over(
    names: Iterable[str], trees: Trees, folder: str, changes: Sequence[str]
) -> tuple[str, ...]:
    """Copy the changed files of the benchmarks that these functions are from head's tree to base's.

    `folder`, relative to the tree, is where the names were given; `changes` are paths of files that
    differ. Returns a sentence on the files that were copied, if there are any.
    """
    tops = {belongs for name in names if (belongs := benchmark(file_of(name, trees[HEAD], folder)))}
    copied = [
        path
        for path in changes
        if "__pycache__" not in path
        and any(path == top or path.startswith(f"{top}/") for top in tops)
        and copy(trees[HEAD] / path, trees[BASE] / path, trees[BASE])
    ]
    if not copied:
        return ()
    return (
        f"the benchmark itself differs: both sides ran head's {few(copied, 3)}, whose own changes"
        " are not compared",
    )


def benchmark(file: str) -> str:
    """The folder of benchmarks that holds a file, or the file, if it is one; else nothing."""
    if within := FOLDER.match(file):
        return within[0]
    return file if FILE.fullmatch(file) else ""


def copy(source: Path, target: Path, tree: Path) -> bool:
    """Copy a file into a tree, if it is one and lands there."""
    existing = next(path for path in (target.parent, *target.parents) if path.exists())
    if not source.is_file() or not existing.is_dir() or not existing.resolve().is_relative_to(tree):
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    shutil.copyfile(source, target)
    return True
