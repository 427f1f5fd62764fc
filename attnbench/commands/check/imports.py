"""Where the processes of a side find their code: folders of its tree, before all others.

What leads imports into head's tree, such as PYTHONPATH or an editable install, leads the processes
of base into the same folder of base's tree.
"""

import tomllib
from collections.abc import Iterator, Mapping
from configparser import ConfigParser
from configparser import Error as ConfigError
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

from attnbench.errors import small_file

PROJECT_FILES = ("pyproject.toml", "setup.cfg", "setup.py")


@dataclass(frozen=True, kw_only=True)
class Imports:
    """How processes import on each side.

    `head` is the tree in whose place another one is imported; `folder` is where the check was
    called, relative to the repository; `sites` has folders of packages that were installed for
    one tree alone.
    """

    head: Path
    folder: str = ""
    sites: Mapping[Path, str] = field(default_factory=lambda: MappingProxyType({}))

    def of(self, tree: Path) -> dict[str, Any]:
        """What a process of this tree is told."""
        return {
            "places": places(tree, self.folder),
            "instead_of": str(self.head),
            "sites": [self.sites[tree]] if tree in self.sites else [],
        }


def places(tree: Path, folder: str = "") -> list[str]:
    """Folders that imports look into first, relative to the tree: those of the nearest project.

    That is the project that holds `folder`, which counts too; those of the tree itself follow.
    """
    here = "" if folder == "." else folder
    candidates = [*project_places(tree, nearest_project(tree, folder)), here, "", "src"]
    return [place for place in dict.fromkeys(candidates) if (tree / place).is_dir()]


def nearest_project(tree: Path, folder: str) -> str:
    """The folder of the nearest project at or above `folder`, or the tree's own, relative to it."""
    here = PurePosixPath(folder)
    for candidate in (here, *here.parents):
        if any((tree / candidate / name).is_file() for name in PROJECT_FILES):
            return "" if str(candidate) == "." else str(candidate)
    return ""


def project_places(tree: Path, project: str) -> Iterator[str]:
    """Folders of a project that hold packages, as its build tool finds them, relative to the tree.

    The project's own folder and its `src` count for all tools.
    """
    for place in (*declared_places(tree / project), "", "src"):
        path = PurePosixPath(project, place)
        if ".." not in path.parts and not path.is_absolute():
            yield "" if str(path) == "." else str(path)


def declared_places(folder: Path) -> Iterator[str]:
    """Folders of packages that the files of a project name; none where they cannot be read."""
    tables = table(read_toml(folder / "pyproject.toml"), "tool")
    yield from setuptools_places(table(tables, "setuptools"))
    yield from hatch_places(table(tables, "hatch", "build"))
    for package in entries(table(tables, "poetry"), "packages"):
        if isinstance(package, Mapping):
            yield from texts(package.get("from"))
    yield from texts(table(tables, "pdm", "build").get("package-dir"))
    yield from texts(table(tables, "uv", "build-backend").get("module-root"))
    yield from texts(table(tables, "maturin").get("python-source"))
    for package in entries(table(tables, "scikit-build", "wheel"), "packages"):
        yield from parent_of_package(package)
    yield from setup_cfg_places(folder / "setup.cfg")


def setuptools_places(options: Mapping[str, Any]) -> Iterator[str]:
    """`package-dir` and `packages.find.where` of setuptools."""
    for name, place in table(options, "package-dir").items():
        # a package of this name is the folder itself; the empty name is where all packages are
        yield from texts(place) if not name else parent_of_package(place)
    yield from texts(table(options, "packages", "find").get("where"))


def hatch_places(options: Mapping[str, Any]) -> Iterator[str]:
    """`packages`, `sources` and `dev-mode-dirs` of hatch."""
    yield from texts(options.get("dev-mode-dirs"))
    for target in (options, table(options, "targets", "wheel")):
        for package in entries(target, "packages"):
            yield from parent_of_package(package)
        sources = target.get("sources")
        if isinstance(sources, Mapping):
            yield from (name for name, place in sources.items() if place == "")
        else:
            yield from texts(sources)


def setup_cfg_places(file: Path) -> Iterator[str]:
    """`package_dir` and `packages.find.where` of a setup.cfg."""
    parser = ConfigParser(interpolation=None)
    try:
        parser.read_string(small_file(file).decode())
    except (OSError, ValueError, ConfigError):
        return
    for line in parser.get("options", "package_dir", fallback="").splitlines():
        name, equals, place = line.partition("=")
        if equals:
            yield from (
                texts(place.strip()) if not name.strip() else parent_of_package(place.strip())
            )
    yield from parser.get("options.packages.find", "where", fallback="").split()


def read_toml(file: Path) -> Mapping[str, Any]:
    """The content of a TOML file; nothing where it cannot be read."""
    try:
        return tomllib.loads(small_file(file).decode())
    except (OSError, ValueError, RecursionError):
        return {}


def table(within: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """The table below these names; an empty one where there is none."""
    for name in names:
        inner = within.get(name)
        if not isinstance(inner, Mapping):
            return {}
        within = inner
    return within


def entries(within: Mapping[str, Any], name: str) -> list[Any]:
    """The list of this name; an empty one where there is none."""
    value = within.get(name)
    return value if isinstance(value, list) else []


def texts(value: Any) -> Iterator[str]:
    """A text, or those of a list."""
    yield from (text for text in (value if isinstance(value, list) else [value]) if one_text(text))


def one_text(value: Any) -> bool:
    """Whether a value names a folder."""
    return isinstance(value, str) and "\0" not in value


def parent_of_package(package: Any) -> Iterator[str]:
    """The folder that holds a package: `src` for `src/shop`."""
    if one_text(package):
        yield str(PurePosixPath(package).parent)
