"""The modes of a measurement: what each means for whatever sizes, predicts, tells or draws it.

A mode is one file in `modes/kinds/`, with what is known of it, and one in `measure/subjects/`, with
what its iteration does; both are named as users name it. To add a mode, add these two; nothing else
has to be edited.
"""

import importlib
import pkgutil
from enum import StrEnum
from functools import cache
from pathlib import Path

from attnbench.modes.facts import ModeFacts


@cache
def find(name: str) -> ModeFacts:
    """What is known of a mode. Raises `ValueError`."""
    if name not in names():
        raise ValueError(f"{name!r} is not a mode; modes: {', '.join(names())}")
    module = importlib.import_module(f"attnbench.modes.kinds.{name}")
    facts: ModeFacts = module.FACTS
    return facts


@cache
def names() -> tuple[str, ...]:
    """The names of all modes, sorted; imports none of them."""
    folder = Path(__file__).parent / "kinds"
    return tuple(sorted(module.name for module in pkgutil.iter_modules([str(folder)])))


class Mode(StrEnum):
    """The name of a mode, with a member for each file."""

    locals().update({name.upper(): name for name in names()})


USUAL = Mode("inference")
ORDERED = tuple(sorted(Mode, key=lambda mode: (find(mode).place, mode)))
BOTH = tuple(mode for mode in ORDERED if find(mode).both)  # those of `--mode both`
PASSES = tuple(mode for mode in ORDERED if not find(mode).steps)  # over whole sequences
