"""Where the code of a case came from: what a side ran of another tree is not compared.

Base must not run head's code: then the two sides are the same, whatever the change. And base must
not lack what git ignores and head has built, such as a compiled extension: then the two differ,
whatever the change.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import Distribution, distributions
from pathlib import Path
from urllib.parse import unquote, urlsplit

from attnbench.commands.check import repository
from attnbench.commands.check.cases import BASE, HEAD, CheckedCase, Trees
from attnbench.records import units

OWN = Path(__file__).resolve().parents[2]  # the package that measures
HINT = "--prepare 'pip install -e .'"


@dataclass(frozen=True, kw_only=True)
class Origins:
    """What the sides of a check have, to tell where the files of a case came from.

    `copies` are installed files of packages that were built from head's tree; `lost` are
    submodules that could not be checked out in base; `prepared` says whether a command has
    prepared both trees; `ours` are folders of the check itself.
    """

    trees: Trees
    copies: frozenset[str] = frozenset()
    lost: Sequence[str] = ()
    prepared: bool = False
    ours: Sequence[Path] = field(default=())

    def reason_apart(self, case: CheckedCase) -> str:
        """Why the two sides of a case cannot be compared; empty if they can."""
        base, head = (case.loaded.get(side) for side in (BASE, HEAD))
        if base is not None and (strange := self.shared_code(base.files)):
            return strange
        return self.missing_code(head.files) if head is not None else ""

    def shared_code(self, files: Iterable[str]) -> str:
        """What base ran of head's tree, in words."""
        loaded = [Path(file) for file in files]
        base = self.trees[BASE]
        other = self.trees[HEAD]
        of_head = [file for file in loaded if lies_in(file, other) and not lies_in(file, base)]
        if of_head:
            names = units.few([file.relative_to(other) for file in of_head], 3)
            return f"both sides ran head's {names}, which imports found in place of base's"
        if copied := [file for file in loaded if str(file) in self.copies]:
            names = units.few([file.name for file in copied], 3)
            return (
                f"both sides ran {names} of {copied[0].parent}, installed from this repository;"
                f" {HINT} builds one for each side"
            )
        return ""

    def missing_code(self, files: Iterable[str]) -> str:
        """What head loaded of its tree that base has no file for, though no change added it."""
        head = self.trees[HEAD]
        base = self.trees[BASE]
        of_head = [Path(f).relative_to(head) for f in files if lies_in(Path(f), head)]
        absent = [path.as_posix() for path in of_head if not (base / path).exists()]
        for path in absent:
            if module := next((m for m in self.lost if path.startswith(f"{m}/")), ""):
                return f"base lacks {path}: its commit of the submodule {module} is not here"
        ignored = repository.ignored_paths(head, absent)
        if not ignored:
            return ""
        names = units.few(ignored, 3)
        if self.prepared:
            return f"base lacks {names}, which git ignores and --prepare did not make there"
        return f"base lacks {names}, which git ignores; build it on both sides with {HINT}"

    def outside_code(self, cases: Iterable[CheckedCase]) -> Iterator[str]:
        """What either side loaded of neither tree, in words."""
        sides = [loaded for case in cases for loaded in case.loaded.values()]
        places = (*self.trees.values(), *self.ours, OWN)
        files = {Path(file) for loaded in sides for file in loaded.modules}
        folders = {
            str(file.parent)
            for file in files
            if file.is_absolute()
            and str(file) not in self.copies
            and not any(lies_in(file, tree) for tree in places)
        }
        if folders:
            yield (
                f"code from outside the repository ran on both sides:"
                f" {units.few(sorted(folders), 3)}; changes there are not compared"
            )


def lies_in(file: Path, tree: Path) -> bool:
    """Whether a file lies in a tree."""
    return file.is_relative_to(tree)


def installed_copies(root: Path) -> frozenset[str]:
    """Files of installed packages that were built from this repository.

    Of an editable install, these are its compiled parts.
    """
    return frozenset(
        str(Path(str(distribution.locate_file(file))).resolve())
        for distribution in distributions()
        if built_from(distribution, root)
        for file in distribution.files or ()
        if file.suffix in (".py", ".so", ".pyd") and not file.name.startswith("__editable__")
    )


def built_from(distribution: Distribution, root: Path) -> bool:
    """Whether a package was installed from a folder of the repository."""
    try:
        source = json.loads(distribution.read_text("direct_url.json") or "{}")
        address = urlsplit(source.get("url", "") if isinstance(source, Mapping) else "")
    except (OSError, ValueError):
        return False
    folder = Path(unquote(address.path))
    return address.scheme == "file" and folder.is_absolute() and lies_in(folder.resolve(), root)
