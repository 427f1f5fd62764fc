"""An option of `sweep`: its place in the help, the words that complete it, and its reader."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from attnbench.catalogue.registry import forms, names
from attnbench.devices.finding import AUTO, find
from attnbench.errors import UsageError
from attnbench.records import PASSES, SHORT_DTYPES, Mode
from attnbench.workloads import axes, presets

FORMATS = ("png", "svg", "pdf")
BOTH = "both"
LARGEST_SEED = (1 << 32) - 1


class HelpPanel(StrEnum):
    """The groups of options in the help."""

    WHAT = "What to measure"
    SIZES = "Sizes"
    NUMBERS = "Precision and device"
    TIME = "How long"
    CLUSTER = "Cluster"
    OUTPUT = "Output"


@dataclass(frozen=True, kw_only=True)
class Option:
    """How an option is shown, completed and read; a flag has no `metavar` and no reader.

    `read` takes the text and the option's name, for errors. `usual` says what an option without a
    default stands for, `known` gives words that may complete a text.
    """

    panel: HelpPanel
    help: str
    metavar: str = ""
    read: Callable[[str, str], Any] | None = None
    usual: str = ""
    known: Callable[[str], Iterable[str]] | None = None


def models(text: str, option: str) -> tuple[str, ...]:
    """The parts of a list of mechanisms. Raises `UsageError` at a misspelt name."""
    parts = tuple(axes.parts(text, option))
    for part in parts:
        presets.expand(part)
    return parts


def known_models(text: str) -> tuple[str, ...]:
    """Names of mechanisms and groups, or after a colon the forms of a mechanism."""
    name, colon, _ = text.partition(":")
    if colon:
        return tuple(f"{name}:{form}" for form in forms(name))
    return (*names(), *presets.groups())


def modes(text: str, option: str = "--mode") -> tuple[Mode, ...]:
    """`inference`, `training`, `both` of these, `decode`, or a list. Raises `UsageError`."""
    if text == BOTH:
        return PASSES
    if not set(words := axes.listed(text)) <= set(Mode):
        raise UsageError(f"{option} {text!r} is not inference, training, both or decode")
    return tuple(map(Mode, words))


def dtypes(text: str, option: str = "--dtype") -> tuple[str, ...]:
    """The full names of floating-point types: `bfloat16` of `bf16`. Raises `UsageError`."""
    full = {word: SHORT_DTYPES.get(word, word) for word in axes.listed(text)}
    if wrong := [word for word in full if full[word] not in SHORT_DTYPES.values()]:
        known = ", ".join(f"{full} or {short}" for short, full in SHORT_DTYPES.items())
        raise UsageError(f"{option} {wrong[0]!r} is not one of {known}")
    return tuple(dict.fromkeys(full.values()))


def device(text: str, option: str) -> str:
    """A device or `auto`, present or not. Raises `UsageError`."""
    return text if text == AUTO else find(text).name


def preset(text: str, option: str) -> str:
    """The name of a preset. Raises `UsageError`."""
    presets.preset(text)
    return text


def formats(text: str, option: str = "--formats") -> tuple[str, ...]:
    """File formats of figures. Raises `UsageError`."""
    if not set(words := axes.listed(text)) <= set(FORMATS):
        raise UsageError(f"{option} {text!r}: figures come as {', '.join(FORMATS)}")
    return words


def verbatim(text: str, option: str) -> str:
    """The text itself."""
    return text
