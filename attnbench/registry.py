"""Names to cards: by file name, by entry point, or by path. No list to keep."""

import importlib
import importlib.util
import pkgutil
from difflib import get_close_matches
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from attnbench.errors import UnknownMechanism

if TYPE_CHECKING:
    from attnbench.contract import Card

GROUP = "attnbench.mechanisms"


def names() -> tuple[str, ...]:
    """Every registered mechanism, sorted; imports none of them."""
    return tuple(sorted(_own() | {point.name for point in entry_points(group=GROUP)}))


def _own() -> set[str]:
    folder = Path(__file__).parent / "mechanisms"
    return {module.name for module in pkgutil.iter_modules([str(folder)])}


def card(name: str) -> "Card":
    """The card of `name`, a mechanism or `path/to/file.py:NAME`.

    Raises `UnknownMechanism` with the nearest names.
    """
    if ".py:" in name:
        return _from_path(name)
    if name in _own():
        return importlib.import_module(f"attnbench.mechanisms.{name}").CARD
    for point in entry_points(group=GROUP, name=name):
        return point.load()
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
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, attribute):
        raise UnknownMechanism(f"{path} has no {attribute!r}")
    return getattr(module, attribute)
