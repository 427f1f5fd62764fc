"""Typer options made from those of `sweep`, and help that lists options in groups."""

import inspect
import re
from collections.abc import Callable
from functools import wraps
from typing import Any

import typer
from typer.core import TyperCommand

from attnbench.cli.completing import completer
from attnbench.workloads.options import flag, options, read

GIVEN = "given"  # a verb's parameter for the options that the user wrote
KEYWORD = inspect.Parameter.KEYWORD_ONLY
OTHERS = "Other options"


class Verb(TyperCommand):
    """A verb whose help shows options in groups, in the order in which each first appears."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The words after the verb: `[OPTIONS] SWEEP_A SWEEP_B`."""
        return [re.sub("[{}]", "", piece) for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, then each group of options."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for shown in self.get_params(ctx):
            if record := shown.get_help_record(ctx):
                panel = getattr(shown, "rich_help_panel", None) or OTHERS
                argument = shown.param_type_name == "argument"
                name, text = record
                name = re.sub(" <.*>$", "", name) if argument else name
                groups.setdefault("Arguments" if argument else panel, []).append((name, text))
        if set(groups) <= {"Arguments", OTHERS}:
            groups = {"Options" if n == OTHERS else n: rows for n, rows in groups.items()}
        for title, rows in groups.items():
            with formatter.section(title):
                formatter.write_dl(rows)


def with_sweep_options(verb: Callable[..., None]) -> Callable[..., Any]:
    """Add the options of `sweep` to a verb; `given` gets the typed values of those written."""

    @wraps(verb)
    def command(context: typer.Context, **values: Any) -> None:
        written = {name: values.pop(name) for name in options()}
        verb(given=read({n: v for n, v in written.items() if is_given(context, n)}), **values)

    shown = [inspect.Parameter("context", KEYWORD, annotation=typer.Context)]
    for name, option in options().items():
        default = None if option.default is None else option.text(option.default)
        hint = str | None if option.kind.read else bool if default is False else bool | None
        made = shared_option(name, default, option.panel)
        shown.append(inspect.Parameter(name, KEYWORD, default=made, annotation=hint))
    own = inspect.signature(verb).parameters
    shown += [own[name].replace(kind=KEYWORD) for name in own if name != GIVEN]
    command.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return command


def is_given(context: typer.Context, name: str) -> bool:
    """Whether the user wrote the option, and did not leave it at its default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def shared_option(name: str, default: Any = None, panel: str | None = None, text: str = "") -> Any:
    """An option of `sweep` for Typer; `text` replaces its help where it is too general."""
    option, names = options()[name], [flag(name)]
    kind = option.kind
    usual = f"  [default: {option.chosen}]" if default is None and option.chosen else ""
    if kind.read is None and option.chosen:  # neither on nor off by default
        names = [f"{names[0]}/{flag('no_' + name)}"]
    return typer.Option(
        default,
        *names,
        help=text or option.help + usual,
        metavar=kind.metavar or None,
        rich_help_panel=panel,
        autocompletion=completer(kind.known) if kind.known else None,
        show_default=not usual and kind.read is not None,
    )
