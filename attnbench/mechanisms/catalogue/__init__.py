"""From names to cards: what may be written for `--models`, and which card or group it means.

    card, names, is_built_in, module_of     cards by their names, of this package and of others
    listed, expand, preset, GROUPS, PRESETS lists of mechanisms, and the sizes of papers
    forms, modules                          what a file declares, read without running it

Loads no torch, but for `card`.
"""

from attnbench.mechanisms.catalogue.declared import forms, modules
from attnbench.mechanisms.catalogue.presets import GROUPS, PRESETS, expand, listed, preset
from attnbench.mechanisms.catalogue.registry import GROUP as ENTRY_POINTS
from attnbench.mechanisms.catalogue.registry import (
    card,
    is_built_in,
    module_of,
    names,
    unknown_name_message,
)

__all__ = (
    "ENTRY_POINTS",
    "GROUPS",
    "PRESETS",
    "card",
    "expand",
    "forms",
    "is_built_in",
    "listed",
    "module_of",
    "modules",
    "names",
    "preset",
    "unknown_name_message",
)
