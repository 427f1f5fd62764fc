"""Typer options made from `Options`, and help that lists options in groups."""

import inspect
import re
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from itertools import zip_longest
from typing import Any, get_type_hints

import typer
from typer.core import TyperCommand

from attnbench.cli.completing import completer
from attnbench.workloads.options import Options, flag, option_specs

GIVEN = "given"  # a verb's parameter for those options of `Options` that the user wrote
ALONE = ("--resume",)
KEYWORD = inspect.Parameter.KEYWORD_ONLY
OTHERS = "Other options"


class Verb(TyperCommand):
    """A verb whose help shows options in groups, in the order in which each first appears."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; an option in `ALONE` may lack a value, which is then empty."""
        pairs = zip_longest(args, args[1:], fillvalue="--")
        words = [f"{a}=" if a in ALONE and b.startswith("--") else a for a, b in pairs]
        return super().parse_args(ctx, words)

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
    """Add the options of `Options` to a verb; `given` gets those written."""
    hints, known = get_type_hints(Options), option_specs()

    @wraps(verb)
    def command(context: typer.Context, **values: Any) -> None:
        written = {name: values.pop(name) for name in known}
        given = {name: value for name, value in written.items() if is_given(context, name)}
        verb(given=given, **values)

    shown = [inspect.Parameter("context", KEYWORD, annotation=typer.Context)]
    for field in fields(Options):
        default = shared_option(field.name, field.default, known[field.name].panel)
        shown.append(
            inspect.Parameter(field.name, KEYWORD, default=default, annotation=hints[field.name])
        )
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
    """An option of `Options` for Typer; `text` replaces its help where it is too general."""
    option, names = option_specs()[name], [flag(name)]
    usual = option.default_text if default is None else ""
    if option.kind.read is None and option.default_text:  # neither on nor off by default
        names = [f"{names[0]}/{flag('no_' + name)}"]
    return typer.Option(
        default,
        *names,
        help=text or option.help + f"  [default: {usual}]" * bool(usual),
        metavar=option.kind.metavar or None,
        rich_help_panel=panel,
        autocompletion=completer(option.kind.known) if option.kind.known else None,
        show_default=not usual and option.kind.read is not None,
    )
