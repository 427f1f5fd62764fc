"""The values that a shell offers for an option; loads no card and no torch.

A `Complete` takes what the user has typed so far, and returns whole values that begin with it, or
that only end otherwise: of `fastformer,trans` it returns `fastformer,transformer`.
"""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

from attnbench.devices import AUTO
from attnbench.devices.finding import kinds
from attnbench.errors import UsageError
from attnbench.mechanisms import catalogue

Complete: TypeAlias = Callable[[str], list[str]]


def no_values(typed: str) -> list[str]:
    """No values: a shell then offers files."""
    return []


def words(values: Iterable[str]) -> Complete:
    """One of some words."""
    all_values = tuple(values)

    def complete(typed: str) -> list[str]:
        return [word for word in all_values if word.startswith(typed)]

    return complete


def lists(values: Iterable[str]) -> Complete:
    """A list of some words with commas between them, each once."""
    all_values = tuple(values)

    def complete(typed: str) -> list[str]:
        before, comma, last = typed.rpartition(",")
        earlier_words = before.split(",")
        return [
            before + comma + word
            for word in all_values
            if word.startswith(last) and word not in earlier_words
        ]

    return complete


def devices(typed: str) -> list[str]:
    """`auto`, or a kind of device."""
    return words((AUTO, *kinds()))(typed)


def mechanism(typed: str) -> list[str]:
    """One mechanism, with a form after a colon; or a module of a file."""
    name, colon, form = typed.rpartition(":")
    if colon and name.endswith(".py"):
        return [f"{name}:{module}" for module in _modules(name) if module.startswith(form)]
    if colon:
        return [f"{name}:{value}" for value in catalogue.forms(name) if value.startswith(form)]
    return [value for value in catalogue.names() if value.startswith(typed)]


def mechanism_or_group(typed: str) -> list[str]:
    """One mechanism as in `mechanism`, or a group such as `@fig2`."""
    return [*mechanism(typed), *(group for group in catalogue.GROUPS if group.startswith(typed))]


def mechanisms(typed: str) -> list[str]:
    """A list of mechanisms, forms, groups, and layers of stacks."""
    cuts = [match.end() for match in re.finditer(r"[,(+*]", typed)]
    for cut in reversed((0, *cuts)):
        before = typed[:cut]
        part = typed[cut:]
        in_stack = before.count("(") > before.count(")")
        if before.count("[") > before.count("]"):
            continue  # a comma between options of a mechanism
        if in_stack or before == "" or before.endswith(","):
            offered = mechanism(part) if in_stack else mechanism_or_group(part)
            return [before + value for value in offered]
    return []


def _modules(path: str) -> tuple[str, ...]:
    """The modules of a file, none if it cannot be read."""
    try:
        return catalogue.modules(Path(path))
    except UsageError:
        return ()
