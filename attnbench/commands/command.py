"""A verb as a command of Typer: its help in groups, and an error at too many arguments."""

import inspect
import re
from collections.abc import Callable
from typing import Any

from typer.core import TyperCommand
from typer.models import ArgumentInfo

from attnbench.errors import UsageError

ARGUMENTS = "Arguments"
OTHERS = "Other options"


class Command(TyperCommand):
    """A verb whose help shows options in groups, in the order in which each first appears."""

    allow_extra_args = True  # `parse_args` refuses them in words of its own

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The words after the verb: `[OPTIONS] SWEEP_A SWEEP_B`, `[OPTIONS] [NAME]`."""
        return ["[OPTIONS]", *(word(shown) for shown in self.get_params(ctx) if is_argument(shown))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, then each group of options."""
        texts = argument_texts(self.callback)
        groups: dict[str, list[tuple[str, str]]] = {ARGUMENTS: []}
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
                groups.setdefault(ARGUMENTS if argument else panel, []).append((name, text))
        alone = set(groups) <= {ARGUMENTS, OTHERS}
        for title, rows in groups.items():
            if rows:
                with formatter.section("Options" if alone and title == OTHERS else title):
                    formatter.write_dl(rows)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words after the verb. Raises `UsageError` at too many arguments."""
        further: list[str] = super().parse_args(ctx, args)
        if further and not ctx.resilient_parsing:
            taken = [str(shown.metavar) for shown in self.params if is_argument(shown)]
            raise UsageError(
                f"attnbench {self.name} takes {' and '.join(taken) or 'options alone'}:"
                f" {further[0]!r} is too much; see attnbench {self.name} --help"
            )
        return further


def is_argument(shown: Any) -> bool:
    """Whether a parameter of a command is given by its place."""
    return bool(shown.param_type_name == "argument")


def word(argument: Any) -> str:
    """An argument in the line of usage: `SWEEP`, `[NAME]`, `FOLDER...`."""
    metavar = argument.metavar or argument.name.upper()
    name = metavar if argument.required or metavar.startswith("[") else f"[{metavar}]"
    return name if argument.nargs == 1 or name.endswith("…") else f"{name}..."


def argument_texts(verb: Callable[..., Any] | None) -> dict[str, str]:
    """The help of each argument of a verb, as its signature has it."""
    texts = dict[str, str]()
    for name, parameter in inspect.signature(verb).parameters.items() if verb else ():
        for known in (parameter.default, *getattr(parameter.annotation, "__metadata__", ())):
            if isinstance(known, ArgumentInfo) and known.help:
                texts[name] = known.help
    return texts
