"""The options of a sweep by their names: their values read from text, and written again.

`given` is everywhere the typed values of those options that someone gave, by name.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from functools import cache, partial
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

from attnbench.catalogue.registry import names, unknown_name_message
from attnbench.devices.finding import AUTO, find, kinds
from attnbench.errors import UsageError
from attnbench.modes import BOTH as BOTH_MODES
from attnbench.records import (
    LEAST_ROUNDS,
    SHORT_DTYPES,
    Cluster,
    EngineKind,
    HelpPanel,
    Level,
    Mode,
    Request,
    Settings,
)
from attnbench.records.selection import parts
from attnbench.workloads import axes, presets

OF_MODEL = ("layers", "dropout", "share_layers", "reversible")  # options of level `model` alone
CROSSED = ("width", "heads", "dtype", "batch")
FORMATS = ("png", "svg", "pdf")
BOTH = "both"
LARGEST_SEED = (1 << 32) - 1
# what a field's metadata says of its option
ABOUT = frozenset({"name", "panel", "kind", "help", "chosen", "limit"})


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


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option by the name that users write, and the field of a record that holds its value."""

    name: str
    field: str
    record: type[Any]
    default: Any  # None: the program chooses, or nothing is asked for
    panel: HelpPanel
    kind: Kind
    help: str
    chosen: str = ""  # what the program chooses where the option is left out
    limit: bool = False  # which a resume may change

    @property
    def affects_measurement(self) -> bool:
        """Whether it says what is measured, not on which cluster."""
        return self.record is not Cluster

    def read(self, value: Any) -> Any:
        """The typed value of a text, number or list; of a flag True or False.

        Raises `UsageError`.
        """
        if self.kind.read is not None:
            return self.kind.read(_as_text(value, flag(self.name)), flag(self.name))
        if not isinstance(value, bool):
            raise UsageError(f"{flag(self.name)} is true or false, not {value!r}")
        return value

    def text(self, value: Any) -> str | bool:
        """A typed value as users write it; a flag stays as it is."""
        return value if self.kind.read is None else self.kind.write(value)

    def words(self, value: Any) -> list[str]:
        """The option with a typed value on the command line: `--seed 7`, `--no-fill`."""
        if isinstance(value, bool):
            return [flag(self.name if value else f"no_{self.name}")]
        return [flag(self.name), str(self.text(value))]


@cache
def options() -> Mapping[str, Option]:
    """Every option by its name in Python, in the order of the help."""
    found = []
    for record in (Request, Settings, Cluster):
        for each in fields(record):
            if "panel" not in (how := each.metadata):
                continue
            default = None if how.get("chosen") or each.default is MISSING else each.default
            about = {"name": each.name, **how, "kind": KINDS[how["kind"]]}
            default = (default,) if each.name in CROSSED and default else default
            own = {key: about[key] for key in ABOUT & about.keys()}
            found.append(Option(field=each.name, record=record, default=default, **own))
    found.sort(key=lambda option: [*HelpPanel].index(option.panel))
    return MappingProxyType({option.name: option for option in found})


def flag(name: str) -> str:
    """An option as the command line has it: `--case-timeout`."""
    return f"--{name.replace('_', '-')}"


def read(values: Mapping[str, Any]) -> dict[str, Any]:
    """The typed values of options that are given by name; None is left out.

    Names may be written with hyphens; values are text, numbers, booleans or lists. Raises
    `UsageError` at an unknown name, or a value that has another type or cannot be read.
    """
    known, given = options(), {}
    for written, value in values.items():
        if (name := written.replace("-", "_")) not in known:
            names = tuple(flag(other).removeprefix("--") for other in known)
            raise UsageError(unknown_name_message(written, names, "option"))
        if value is not None:
            given[name] = known[name].read(value)
    return given


def of_request(request: Request) -> dict[str, Any]:
    """The options that ask for this request, without those that have no effect in it."""
    values = {
        name: getattr(request if option.record is Request else request.settings, option.field)
        for name, option in options().items()
        if option.affects_measurement
    }
    for name in CROSSED:
        values[name] = tuple(dict.fromkeys(getattr(one, name) for one in request.sizes))
    useless = {name for name in ("fill", "share_layers", "reversible") if values[name] is None}
    useless.add("batch" if request.batch is None else "tokens")
    if request.level is not Level.MODEL:
        useless.update(OF_MODEL)
    if request.precision is None or request.rounds < LEAST_ROUNDS:
        useless.add("precision")
    return {name: value for name, value in values.items() if name not in useless}


def _as_text(value: Any, option: str) -> str:
    """`128,256` of `[128, 256]`. Raises `UsageError`."""
    if hasattr(value, "tolist"):  # an array, or a number of one
        value = value.tolist()
    if isinstance(value, list | tuple | range):
        return ",".join(_as_text(part, option) for part in value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UsageError(f"{option} is text, a number or a list of them, not {value!r}")
    return str(value)


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


DTYPES = (*SHORT_DTYPES.values(), *SHORT_DTYPES)
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
        "dtypes": Kind("DTYPE[,DTYPE...]", dtypes, known=lambda text: DTYPES),
        "device": Kind(
            "DEVICE",
            lambda text, option: text if text == AUTO else find(text).name,
            known=lambda text: (AUTO, *kinds()),
        ),
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
