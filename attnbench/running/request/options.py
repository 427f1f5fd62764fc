"""The options of a sweep by their names, and their values read from text.

`given` is everywhere the typed values of those options that someone gave, by name.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache, partial
from types import MappingProxyType
from typing import Any, TypeAlias

from attnbench.devices import AUTO, find
from attnbench.errors import UsageError
from attnbench.mechanisms import catalogue
from attnbench.records import (
    SHORT_DTYPES,
    SIZES,
    Cluster,
    EngineKind,
    HelpPanel,
    Level,
    Mode,
    Request,
    Settings,
)
from attnbench.records.modes import BOTH as BOTH_MODES
from attnbench.running.request import axes, completion
from attnbench.running.request.cells import file_of
from attnbench.running.request.completion import Complete

# takes a text and, for errors, the name of the option
Reader: TypeAlias = Callable[[str, str], Any]

BOTH = "both"
LARGEST_SEED = (1 << 32) - 1


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option by the name that users write, and the field of a record that holds its value."""

    name: str
    field: str
    record: type[Any]
    flag: bool  # on or off
    limit: bool  # whether a sweep that goes on may have another
    default: Any  # which what the program chooses replaces
    panel: HelpPanel
    help: str
    chosen: str  # what the program chooses where the option is left out
    metavar: str
    reader: Reader
    complete: Complete  # the values that a shell offers

    @property
    def is_crossed(self) -> bool:
        """Whether a list means every combination with the other sizes."""
        return self.field in SIZES

    def read(self, value: Any) -> Any:
        """The typed value of a text, number or list; of a flag True or False.

        Raises `UsageError`.
        """
        if not self.flag:
            return self.reader(_as_text(value, flag(self.name)), flag(self.name))
        if not isinstance(value, bool):
            raise UsageError(f"{flag(self.name)} is true or false, not {value!r}")
        return value


@cache
def options() -> Mapping[str, Option]:
    """Every option by its name in Python, in the order of the help."""
    every_option = []
    for record in (Request, Settings, Cluster):
        declared = [entry for entry in fields(record) if "panel" in entry.metadata]
        for entry in declared:
            default = None if entry.default is MISSING else entry.default
            name = entry.metadata.get("name", entry.name)
            kind = KINDS.get(name, SIZE)
            option = Option(
                name=name,
                field=entry.name,
                record=record,
                flag=entry.type in (bool, bool | None),
                limit=entry.metadata.get("limit", False),
                default=(default,) if default and entry.name in SIZES else default,
                panel=entry.metadata["panel"],
                help=entry.metadata["help"],
                chosen=entry.metadata.get("chosen", ""),
                metavar=kind.metavar,
                reader=kind.reader,
                complete=kind.complete,
            )
            every_option.append(option)
    every_option.sort(key=lambda option: [*HelpPanel].index(option.panel))
    return MappingProxyType({option.name: option for option in every_option})


def flag(name: str) -> str:
    """An option as the command line has it: `--case-timeout`."""
    return f"--{name.replace('_', '-')}"


def read(values: Mapping[str, Any]) -> dict[str, Any]:
    """The typed values of options that are given by name; None is left out.

    Names may be written with hyphens; values are text, numbers, booleans or lists. Raises
    `UsageError` at an unknown name, or a value that has another type or cannot be read.
    """
    options_by_name = options()
    typed_values = {}
    for written_name, value in values.items():
        if (name := written_name.replace("-", "_")) not in options_by_name:
            names = tuple(flag(option_name).removeprefix("--") for option_name in options_by_name)
            raise UsageError(catalogue.unknown_name_message(written_name, names, "option"))
        if value is not None:
            typed_values[name] = options_by_name[name].read(value)
    return typed_values


def _as_text(value: Any, option: str) -> str:
    """`128,256` of `[128, 256]`. Raises `UsageError`."""
    if hasattr(value, "tolist"):  # an array, or a number of one
        value = value.tolist()
    if isinstance(value, list | tuple | range):
        return ",".join(_as_text(part, option) for part in value)
    if callable(value) and option == flag("models"):
        return file_of(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UsageError(f"{option} is text, a number or a list of them, not {value!r}")
    return str(value)


def models(text: str, option: str) -> tuple[str, ...]:
    """The parts of a list of mechanisms; a file alone means the one module that it has.

    Raises `UsageError` at a misspelt name, or at a file with none or several modules.
    """
    return catalogue.listed(text, option)


def modes(text: str, option: str) -> tuple[Mode, ...]:
    """A mode, `both` (training and inference), or a list of modes. Raises `UsageError`."""
    if text == BOTH:
        return BOTH_MODES
    if not set(words := axes.words_of(text)) <= set(Mode):
        raise UsageError(f"{option} {text!r} is not {', '.join(Mode)} or {BOTH}")
    return tuple(map(Mode, words))


def dtypes(text: str, option: str) -> tuple[str, ...]:
    """The full names of floating-point types: `bfloat16` of `bf16`. Raises `UsageError`."""
    full = {word: SHORT_DTYPES.get(word, word) for word in axes.words_of(text)}
    if unknown_words := [word for word in full if full[word] not in SHORT_DTYPES.values()]:
        known = ", ".join(f"{full} or {short}" for short, full in SHORT_DTYPES.items())
        raise UsageError(f"{option} {unknown_words[0]!r} is not one of {known}")
    return tuple(dict.fromkeys(full.values()))


def preset(text: str, option: str) -> str:
    """The name of a preset. Raises `UsageError`."""
    catalogue.preset(text)
    return text


def device(text: str, option: str) -> str:
    """The name of a device, or `auto`. Raises `UsageError`."""
    return text if text == AUTO else find(text).name


@dataclass(frozen=True, kw_only=True)
class OptionKind:
    """How the values of an option are shown, read and completed."""

    metavar: str
    reader: Reader
    complete: Complete = completion.no_values


def same_text(text: str, option: str) -> str:
    """The text itself."""
    return text


BOTH_AND_MODES = (BOTH, *Mode)
DTYPES = (*SHORT_DTYPES.values(), *SHORT_DTYPES)
SIZE = OptionKind(metavar="N", reader=partial(axes.size, most=axes.LARGEST))
SIZE_LIST = OptionKind(metavar="N[,N...]", reader=axes.lengths)
TIME = OptionKind(metavar="TIME", reader=axes.seconds)
# of the options that are not a single size
KINDS: Mapping[str, OptionKind] = MappingProxyType({
    "models": OptionKind(metavar="MECHANISMS", reader=models, complete=completion.mechanisms),
    "lengths": OptionKind(metavar="LENGTHS", reader=axes.lengths),
    "mode": OptionKind(metavar="MODE", reader=modes, complete=completion.lists(BOTH_AND_MODES)),
    "level": OptionKind(
        metavar="LEVEL",
        reader=partial(axes.word, words=Level),
        complete=completion.words(Level),
    ),
    "on": OptionKind(
        metavar="CLUSTER",
        reader=partial(axes.word, words=EngineKind),
        complete=completion.words(EngineKind),
    ),
    "preset": OptionKind(
        metavar="NAME", reader=preset, complete=completion.words(catalogue.PRESETS)
    ),
    "tokens": OptionKind(metavar="N", reader=axes.size),
    "width": SIZE_LIST,
    "heads": SIZE_LIST,
    "batch": SIZE_LIST,
    "step": SIZE_LIST,
    "dtype": OptionKind(
        metavar="DTYPE[,DTYPE...]", reader=dtypes, complete=completion.lists(DTYPES)
    ),
    "device": OptionKind(metavar="DEVICE", reader=device, complete=completion.devices),
    "seed": OptionKind(metavar="N", reader=partial(axes.size, least=0, most=LARGEST_SEED)),
    "padding": OptionKind(metavar="SHARE", reader=partial(axes.share, most=0.95)),
    "dropout": OptionKind(metavar="SHARE", reader=partial(axes.share, most=0.9)),
    "precision": OptionKind(metavar="SHARE", reader=partial(axes.share, most=0.5)),
    "budget": TIME,
    "case_timeout": TIME,
    "slurm": OptionKind(metavar="OPTIONS", reader=same_text),
})  # fmt: skip
