"""Options for Typer: those of `sweep` by their declaration, and what several verbs share."""

import inspect
import re
from collections.abc import Callable, Collection, Sequence
from functools import wraps
from typing import Any

import typer
from typer.core import TyperCommand
from typer.models import ArgumentInfo

from attnbench.errors import UsageError
from attnbench.records.selection import Selection, parts
from attnbench.workloads import axes
from attnbench.workloads.options import flag, options
from attnbench.workloads.options import read as read_options
from attnbench.workloads.presets import expand

GIVEN = "given"  # a verb's parameter for the options that the user wrote
KEYWORD = inspect.Parameter.KEYWORD_ONLY
OTHERS = "Other options"


class Verb(TyperCommand):
    """A verb whose help shows options in groups, in the order in which each first appears."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The words after the verb: `[OPTIONS] SWEEP_A SWEEP_B`, `[OPTIONS] [NAME]`."""
        return ["[OPTIONS]", *(word(shown) for shown in self.get_params(ctx) if is_argument(shown))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, then each group of options."""
        texts = argument_texts(self.callback)
        groups: dict[str, list[tuple[str, str]]] = {}
        parameters: list[Any] = self.get_params(ctx)
        for shown in parameters:
            argument = is_argument(shown)
            if argument:  # with click 8.5, the oldest Typers lose the help of arguments
                shown.help = shown.help or texts.get(shown.name)
            if record := shown.get_help_record(ctx):
                panel = getattr(shown, "rich_help_panel", None) or OTHERS
                name = re.sub(" <.*>$", "", record[0]) if argument else record[0]
                # older Typers escape for rich, which does not write this
                text = record[1].replace("\\[", "[")
                groups.setdefault("Arguments" if argument else panel, []).append((name, text))
        for title, rows in groups.items():
            alone = title == OTHERS and set(groups) <= {"Arguments", OTHERS}
            with formatter.section("Options" if alone else title):
                formatter.write_dl(rows)


def is_argument(shown: Any) -> bool:
    """Whether a parameter of a command is given by its place."""
    return bool(shown.param_type_name == "argument")


def word(argument: Any) -> str:
    """An argument in the line of usage: `SWEEP`, `[NAME]`, `FOLDER...`."""
    metavar = argument.metavar or argument.name.upper()
    name = metavar if argument.required or metavar.startswith("[") else f"[{metavar}]"
    return name if argument.nargs == 1 or name.endswith(("…", "]")) else f"{name}..."


def argument_texts(verb: Callable[..., Any] | None) -> dict[str, str]:
    """The help of each argument of a verb, as its signature has it."""
    texts = dict[str, str]()
    for name, parameter in inspect.signature(verb).parameters.items() if verb else ():
        for known in (parameter.default, *getattr(parameter.annotation, "__metadata__", ())):
            if isinstance(known, ArgumentInfo) and known.help:
                texts[name] = known.help
    return texts


def option(
    metavar: str,
    text: str,
    panel: str | None = None,
    default: Any = None,
    names: Sequence[str] = (),
) -> Any:
    """An option with a value, named after its parameter unless it has other names."""
    return typer.Option(default, *names, metavar=metavar, help=text, rich_help_panel=panel)


def switch(name: str, text: str, panel: str | None = None) -> Any:
    """An option without a value, off by default."""
    return typer.Option(False, name, help=text, rich_help_panel=panel)


def as_json(panel: str | None = None) -> Any:
    """The option for data in place of text."""
    return switch("--json", "Print the results as JSON.", panel)


def shared_option(name: str, default: Any = None, panel: str | None = None, text: str = "") -> Any:
    """An option of `sweep` for Typer; `text` replaces its help where it is too general.

    Without a default of the verb's own, the help names the one of `sweep`.
    """
    known = options()[name]
    unset = known.flag or known.default in (None, "")
    usual = known.chosen or ("" if unset else str(known.default))
    shown = known.help + (f"  [default: {usual}]" if usual and default is None else "")
    if known.flag:
        either = f"/{flag('no_' + name)}" if known.chosen else ""  # neither on nor off by default
        return typer.Option(None, flag(name) + either, help=shown, rich_help_panel=panel)
    return option(known.metavar, text or shown, panel, default, [flag(name)])


def further_options(text: str) -> Any:
    """The arguments of a verb that are options of `sweep`; `text` says which it takes."""
    return typer.Argument(None, metavar="[OPTIONS OF SWEEP]", help=text)


def with_sweep_options(verb: Callable[..., None]) -> Callable[..., Any]:
    """Add the options of `sweep` to a verb; `given` gets the typed values of those written."""

    @wraps(verb)
    def command(**values: Any) -> None:
        verb(given=read_options({name: values.pop(name) for name in options()}), **values)

    shown = []
    for name, known in options().items():
        made = shared_option(name, panel=known.panel)
        hint = bool | None if known.flag else str | None
        shown.append(inspect.Parameter(name, KEYWORD, default=made, annotation=hint))
    own = inspect.signature(verb).parameters
    shown += [own[name].replace(kind=KEYWORD) for name in own if name != GIVEN]
    command.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return command


def parsed(
    command: Callable[..., Any], arguments: Sequence[str], *names: str
) -> tuple[list[str], dict[str, Any]]:
    """The arguments of these names, and the values, as text, of those options of a verb that stand
    among them in any order.

    Raises `UsageError` at more or fewer arguments, and errors of the parser, which name the verb.
    """
    app = typer.Typer(add_completion=False)
    app.command(context_settings={"allow_extra_args": True})(command)
    context = typer.main.get_command(app).make_context(
        f"attnbench {command.__name__}", [*arguments]
    )
    if len(context.args) != len(names):
        given = ", ".join(map(repr, context.args)) or "nothing"
        raise UsageError(f"give {' and '.join(names)} besides options, not {given}")
    values = {name: value for name, value in context.params.items() if value not in (None, False)}
    return context.args, values


def formats(text: str | None, known: Collection[str]) -> tuple[str, ...]:
    """What `--formats` lists, each once; nothing if it was left out. Raises `UsageError`."""
    chosen = () if text is None else axes.listed(text)
    if not set(chosen) <= set(known):
        raise UsageError(f"--formats {text!r}: known are {', '.join(known)}")
    return chosen


def selections(models: str) -> tuple[Selection, ...]:
    """What `--models` names, without loading torch. Raises `UsageError` at a misspelt name."""
    return tuple(chosen for part in parts(models, "--models") for chosen in expand(part))
