"""Finds the card of a mechanism by file name, entry point or path; no list to maintain."""

import importlib
import importlib.util
import pkgutil
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from attnbench.errors import UnknownMechanism, one_line
from attnbench.records.selection import layers, mechanisms

if TYPE_CHECKING:
    from attnbench.attention import Attention, Card

GROUP = "attnbench.mechanisms"
PACKAGE = Path(__file__).parents[2]
# beside attention in layers of models, in the folder `feeds`: measured by name, and not listed
FEEDS = ("feed_forward", "experts")


def names() -> tuple[str, ...]:
    """The names of all registered mechanisms, sorted; imports none of them."""
    return tuple(sorted(built_in() | {point.name for point in entry_points(group=GROUP)}))


def built_in() -> set[str]:
    """The names of this package's mechanisms."""
    folder = PACKAGE / "mechanisms"
    modules = pkgutil.iter_modules([str(folder)])
    return {module.name for module in modules if not module.ispkg}


@cache
def is_built_in(name: str) -> bool:
    """Whether this package has the mechanism or feed-forward, or all layers of the stack."""
    return (built_in() | {*FEEDS}).issuperset(mechanisms(name))


def decodes(name: str) -> bool:
    """Whether a mechanism of this package can decode: its card gives no `no_decode_reason`."""
    file = PACKAGE / "mechanisms" / f"{name}.py"
    return name in built_in() and "no_decode_reason=" not in file.read_text(encoding="utf-8")


def card(name: str) -> "Card":
    """The card of `name`, a mechanism, `path/to/file.py:NAME` or stack, with a form `compiled`.

    Also of a feed-forward.

    A mechanism of this package also has the forms that other packages compute, and `NAME:file.py`
    one for each function of the file. Raises `UnknownMechanism`, which suggests the nearest names,
    and for a stack `UsageError`.
    """
    found = _card(name)
    from attnbench.mechanisms.catalogue.compiled import with_compiled

    return with_compiled(found)


def _card(name: str) -> "Card":
    if layers(name):
        from attnbench.mechanisms.catalogue.stacked import stacked

        return stacked(name, card)
    if ".py:" in name:
        return _from_path(name)
    if name.endswith(".py"):
        return _claimed(name)
    if name in FEEDS:
        feed: Card = importlib.import_module(f"attnbench.mechanisms.feeds.{name}").CARD
        return feed
    if name in built_in():
        own: Card = importlib.import_module(f"attnbench.mechanisms.{name}").CARD
        return replace(own, forms={**own.forms, **package_forms(name)})
    for point in entry_points(group=GROUP, name=name):
        return _adopted(point.load, name)
    raise UnknownMechanism(unknown_name_message(name, names()))


def package_forms(mechanism: str) -> dict[str, "type[Attention]"]:
    """The forms of a mechanism that packages compute, by package; imports none of them."""
    files = (file.name for file in pkgutil.iter_modules([str(PACKAGE / "mechanisms" / "peers")]))
    offered = {
        file: importlib.import_module(f"attnbench.mechanisms.peers.{file}").FORMS for file in files
    }
    return {file: known[mechanism] for file, known in offered.items() if mechanism in known}


def unknown_name_message(name: str, known: tuple[str, ...], kind: str = "mechanism") -> str:
    """The error text for an unknown name of some kind: the nearest known, or where to find all."""
    containing = [candidate for candidate in known if len(name) > 2 and name in candidate]
    near = containing[:3] or get_close_matches(name, known, n=3, cutoff=0.54)
    hint = "attnbench models lists them" if known == names() else f"known: {', '.join(known)}"
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    return f"unknown {kind} {name!r}; {hint}"


def _from_path(name: str) -> "Card":
    path, _, attribute = name.rpartition(":")
    if not Path(path).is_file():
        raise UnknownMechanism(f"no file {path!r} for mechanism {name!r}")

    def load() -> Any:
        module = module_of(Path(path))
        if not hasattr(module, attribute):
            offers = [public for public in vars(module) if not public.startswith("_")]
            raise UnknownMechanism(
                unknown_name_message(attribute, tuple(offers), f"name in {path}")
            )
        return getattr(module, attribute)

    return _adopted(load, name)


def _claimed(name: str) -> "Card":
    mechanism, _, path = name.partition(":")
    own = _card(mechanism)
    if not Path(path).is_file():
        raise UnknownMechanism(f"no file {path!r} for the kernel of {mechanism}")
    from attnbench.mechanisms.catalogue.claimed import claimed

    return claimed(own, _loaded(lambda: module_of(Path(path)), name), name)


def module_of(path: Path) -> ModuleType:
    """The file as a module, run once per process; it can import files of the same folder.

    In a folder with `__init__.py` it is a module of that package, with its relative imports.
    """
    package, above = _package(path.resolve())
    name = f"attnbench_user_{path.stem}_{zlib.crc32(bytes(path.resolve())):08x}"
    name = f"{package}.{name}" if package else name
    if name in sys.modules:
        return sys.modules[name]
    if package and str(above) not in sys.path:
        sys.path.insert(0, str(above))  # before an installed copy of the package
    if str(path.resolve().parent) not in sys.path:
        sys.path.append(str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, "a .py file has a spec"
    assert spec.loader is not None, "and a loader"
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _package(file: Path) -> tuple[str, Path]:
    """The dotted name of the package of a file, or nothing, and the folder above it."""
    folder = file.parent
    parts = list[str]()
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts), folder


def _adopted(load: Callable[[], Any], name: str) -> "Card":
    """The card of the object that `load` returns."""
    offered = _loaded(load, name)
    from attnbench.mechanisms.catalogue.adopted import adopt

    return adopt(offered, name)


def _loaded(load: Callable[[], Any], name: str) -> Any:
    """What `load` returns; errors in user code become one line."""
    try:
        return load()
    except UnknownMechanism:
        raise
    except (Exception, SystemExit) as error:
        raise UnknownMechanism(f"mechanism {name!r} cannot be loaded: {one_line(error)}") from error
