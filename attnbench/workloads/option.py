"""Options of `sweep`: their place in the help, their kinds of values, and the parsers."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple

from attnbench.catalogue.registry import names
from attnbench.devices.finding import AUTO, find, kinds
from attnbench.errors import UsageError
from attnbench.modes import BOTH as BOTH_MODES
from attnbench.records import SHORT_DTYPES, Mode
from attnbench.records.selection import parts
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


class Kind(NamedTuple):
    """What the values of an option are; a flag, on or off, has no reader.

    `read` takes the text and the option's name, for errors. `known` gives words that may complete a
    text.
    """

    metavar: str
    read: Callable[[str, str], Any] | None
    known: Callable[[str], Iterable[str]] | None = None


@dataclass(frozen=True, kw_only=True)
class OptionSpec:
    """How an option is shown, completed and read.

    `default_text` says what an option without a default stands for.
    """

    panel: HelpPanel
    help: str
    kind: Kind
    default_text: str = ""

    @property
    def affects_measurement(self) -> bool:
        """Whether it says what is measured, not on which cluster."""
        return self.panel is not HelpPanel.CLUSTER


def models(text: str, option: str) -> tuple[str, ...]:
    """The parts of a list of mechanisms. Raises `UsageError` at a misspelt name."""
    found = tuple(parts(text, option))
    for part in found:
        presets.expand(part)
    return found


def modes(text: str, option: str = "--mode") -> tuple[Mode, ...]:
    """A mode, `both` (training and inference), or a list of modes. Raises `UsageError`."""
    if text == BOTH:
        return BOTH_MODES
    if not set(words := axes.listed(text)) <= set(Mode):
        raise UsageError(f"{option} {text!r} is not {', '.join(Mode)} or {BOTH}")
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


def word(metavar: str, known: type[StrEnum]) -> Kind:
    """One of the words of an enumeration."""
    return Kind(metavar, partial(axes.word, known=known), lambda text: known)


def share(most: float) -> Kind:
    """A number from 0 to `most`."""
    return Kind("SHARE", partial(axes.number, most=most))


def text(metavar: str) -> Kind:
    """Any text, as it is."""
    return Kind(metavar, lambda text, option: text)


FLAG = Kind("", None)
MODELS = Kind("MECHANISMS", models, lambda text: (*names(), *presets.groups()))
LENGTHS = Kind("LENGTHS", axes.lengths)
MODES = Kind("MODE", modes, lambda text: (*Mode, BOTH))
PRESET = Kind("NAME", preset, lambda text: presets.presets())
DTYPES = Kind("DTYPE[,DTYPE...]", dtypes, lambda text: (*SHORT_DTYPES.values(), *SHORT_DTYPES))
DEVICE = Kind("DEVICE", device, lambda text: (AUTO, *kinds()))
SIZE = Kind("N", axes.size)
WHOLE = Kind("N", axes.whole)
WHOLES = Kind("N[,N...]", axes.wholes)
SEED = Kind("N", partial(axes.whole, least=0, most=LARGEST_SEED))
SECONDS = Kind("TIME", axes.seconds)
PERCENT = Kind("PERCENT", axes.percent)
