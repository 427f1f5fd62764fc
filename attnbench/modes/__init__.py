"""The modes of a measurement: the facts that planning, predictions, tables and figures need.

A mode is one file in `modes/kinds/`, with its facts and named as users name the mode, and a class
in `measure/subject.py`, with the code of its iteration.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path

from attnbench.modes.facts import ModeFacts


@cache
def known() -> Mapping[str, ModeFacts]:
    """Every mode by its name, in the order of figures and lists."""
    names = [module.name for module in pkgutil.iter_modules([str(Path(__file__).parent / "kinds")])]
    facts = {name: importlib.import_module(f"attnbench.modes.kinds.{name}").FACTS for name in names}
    return dict(sorted(facts.items(), key=lambda pair: pair[1].order))


def find(name: str) -> ModeFacts:
    """The facts of a mode. Raises `ValueError`."""
    if name not in known():
        raise ValueError(f"{name!r} is not a mode; modes: {', '.join(known())}")
    return known()[name]


class Mode(StrEnum):
    """The name of a mode, with a member for each file."""

    locals().update({name.upper(): name for name in known()})


USUAL = Mode("inference")
BOTH = tuple(mode for mode in Mode if find(mode).both)  # those of `--mode both`
PASSES = tuple(mode for mode in Mode if not find(mode).steps)  # over whole sequences
