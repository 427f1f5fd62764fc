"""Names to cards: by file name, by entry point, or by path. No list to keep."""

import importlib
import importlib.util
import pkgutil
import sys
import zlib
from collections.abc import Callable
from difflib import get_close_matches
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from attnbench.errors import UnknownMechanism

if TYPE_CHECKING:
    from attnbench.contract import Card

GROUP = "attnbench.mechanisms"


def names() -> tuple[str, ...]:
    """Every registered mechanism, sorted; imports none of them."""
    return tuple(sorted(own() | {point.name for point in entry_points(group=GROUP)}))


def own() -> set[str]:
    """The mechanisms of this package."""
    folder = Path(__file__).parent / "mechanisms"
    return {module.name for module in pkgutil.iter_modules([str(folder)])}


def card(name: str) -> "Card":
    """The card of `name`, a mechanism or `path/to/file.py:NAME`.

    Raises `UnknownMechanism` with the nearest names.
    """
    if ".py:" in name:
        return _from_path(name)
    if name in own():
        return importlib.import_module(f"attnbench.mechanisms.{name}").CARD
    for point in entry_points(group=GROUP, name=name):
        return _adopted(point.load, name)
    raise UnknownMechanism(unknown(name, names()))


def unknown(name: str, known: tuple[str, ...], what: str = "mechanism") -> str:
    """The text of the error for a name that is not known."""
    parts = [each for each in known if len(name) > 2 and name in each]
    near = parts[:3] or get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known)}"
    return f"unknown {what} {name!r}; {hint}"


def _from_path(name: str) -> "Card":
    path, _, attribute = name.rpartition(":")
    if not Path(path).is_file():
        raise UnknownMechanism(f"no file {path!r} for mechanism {name!r}")

    def load() -> Any:
        module = _module(Path(path))
        if not hasattr(module, attribute):
            offers = [each for each in vars(module) if not each.startswith("_")]
            raise UnknownMechanism(unknown(attribute, tuple(offers), f"name in {path}"))
        return getattr(module, attribute)

    return _adopted(load, name)


def _module(path: Path) -> ModuleType:
    """The file as a module, run once in a process; its neighbours can be imported by it."""
    name = f"attnbench_user_{path.stem}_{zlib.crc32(bytes(path.resolve())):08x}"
    if name in sys.modules:
        return sys.modules[name]
    if str(path.resolve().parent) not in sys.path:
        sys.path.append(str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _adopted(load: Callable[[], Any], name: str) -> "Card":
    """The card of what is loaded; whatever the user's code raises is told in one line."""
    try:
        offered = load()
    except UnknownMechanism:
        raise
    except (Exception, SystemExit) as error:
        raise UnknownMechanism(f"mechanism {name!r} cannot be loaded: {one_line(error)}") from error
    from attnbench.adopted import adopt

    return adopt(offered, name)


def one_line(error: BaseException) -> str:
    """The class of an exception and the first line of its text."""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"
