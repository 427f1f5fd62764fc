"""The kinds of values that options have: how each is read from text, written, and completed."""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

from attnbench.catalogue.registry import names
from attnbench.devices.finding import AUTO, find, kinds
from attnbench.errors import UsageError
from attnbench.modes import BOTH as BOTH_MODES
from attnbench.records import SHORT_DTYPES, EngineKind, Level, Mode
from attnbench.records.selection import parts
from attnbench.workloads import axes, presets

FORMATS = ("png", "svg", "pdf")
BOTH = "both"
LARGEST_SEED = (1 << 32) - 1


def listed(value: Any) -> str:
    """A value as text, a list with commas."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


class Kind(NamedTuple):
    """What the values of an option are; a flag, on or off, has no reader.

    `read` takes the text and the option's name, for errors; `write` gives text that it reads as the
    same value. `known` gives words that may complete a text.
    """

    metavar: str
    read: Callable[[str, str], Any] | None
    write: Callable[[Any], str] = listed
    known: Callable[[str], Iterable[str]] | None = None


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


def one_of(metavar: str, known: type[StrEnum]) -> Kind:
    """One of the words of an enumeration."""
    return Kind(metavar, partial(axes.word, known=known), known=lambda text: known)


def share(most: float) -> Kind:
    """A number from 0 to `most`."""
    return Kind("SHARE", partial(axes.number, most=most), lambda v: str(v).removesuffix(".0"))


def lengths_text(lengths: tuple[int, ...]) -> str:
    """`128..65536:x2`, or a list."""
    if len(lengths) > 2 and all(b == 2 * a for a, b in pairwise(lengths)):
        return f"{lengths[0]}..{lengths[-1]}:x2"
    return listed(lengths)


def time_text(seconds: float | None) -> str:
    """`15m`, `90.5s`, `none`."""
    if seconds is None:
        return "none"
    return f"{decimal(seconds / 60)}m" if seconds % 60 == 0 else f"{decimal(seconds)}s"


def decimal(value: float) -> str:
    """Nine digits behind the point at most."""
    return f"{value:.9f}".rstrip("0").rstrip(".")


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "flag": Kind("", None),
        "models": Kind("MECHANISMS", models, known=lambda text: (*names(), *presets.groups())),
        "lengths": Kind("LENGTHS", axes.lengths, lengths_text),
        "modes": Kind(
            "MODE",
            modes,
            lambda value: BOTH if value == BOTH_MODES else listed(value),
            known=lambda text: (*Mode, BOTH),
        ),
        "level": one_of("LEVEL", Level),
        "engine": one_of("CLUSTER", EngineKind),
        "preset": Kind("NAME", preset, known=lambda text: presets.presets()),
        "dtypes": Kind(
            "DTYPE[,DTYPE...]",
            dtypes,
            known=lambda text: (*SHORT_DTYPES.values(), *SHORT_DTYPES),
        ),
        "device": Kind("DEVICE", device, known=lambda text: (AUTO, *kinds())),
        "size": Kind("N", axes.size),
        "whole": Kind("N", axes.whole),
        "wholes": Kind("N[,N...]", axes.wholes),
        "seed": Kind("N", partial(axes.whole, least=0, most=LARGEST_SEED)),
        "padding": share(0.95),
        "dropout": share(0.9),
        "seconds": Kind("TIME", axes.seconds, time_text),
        "percent": Kind("PERCENT", axes.percent, lambda value: f"{decimal(100 * value)}%"),
        "text": Kind("OPTIONS", lambda text, option: text),
    }
)
