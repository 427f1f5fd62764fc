"""The options of a sweep by their names: their values read from text, and written again.

`given` is everywhere the typed values of those options that someone gave, by name.
"""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from types import MappingProxyType
from typing import Any

from attnbench.catalogue.registry import unknown_name_message
from attnbench.errors import UsageError
from attnbench.records import LEAST_ROUNDS, Cluster, HelpPanel, Level, Request, Settings
from attnbench.workloads.kinds import KINDS, Kind

OF_MODEL = ("layers", "dropout", "share_layers", "reversible")  # options of level `model` alone
CROSSED = ("width", "heads", "dtype", "batch")


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
    chosen: str  # what the program chooses where the option is left out
    limit: bool  # which a resume may change

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
            found.append(
                Option(
                    name=how.get("name", each.name),
                    field=each.name,
                    record=record,
                    default=(default,) if each.name in CROSSED and default else default,
                    panel=how["panel"],
                    kind=KINDS[how["kind"]],
                    help=how["help"],
                    chosen=how.get("chosen", ""),
                    limit=how.get("limit", False),
                )
            )
    panels = [*HelpPanel]
    found.sort(key=lambda option: panels.index(option.panel))
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
