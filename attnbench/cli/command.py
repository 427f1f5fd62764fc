"""A verb as a command of Typer: its help in groups, and errors about options of other verbs."""

import re
from typing import Any

from typer.core import TyperCommand

from attnbench.errors import UsageError

ARGUMENTS = "Arguments"
OTHERS = "Other options"


class Command(TyperCommand):
    """A verb whose help shows options in groups, in the order in which each first appears."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The words after the verb: `[OPTIONS] SWEEP_A SWEEP_B`."""
        return [re.sub("[{}]", "", piece) for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, then each group of options."""
        groups: dict[str, list[tuple[str, str]]] = {ARGUMENTS: []}
        for shown in self.get_params(ctx):
            if record := shown.get_help_record(ctx):
                argument = shown.param_type_name == "argument"
                panel = getattr(shown, "rich_help_panel", None) or OTHERS
                name = re.sub(" <.*>$", "", record[0]) if argument else record[0]
                title = ARGUMENTS if argument else panel
                groups.setdefault(title, []).append((name, record[1]))
        alone = set(groups) <= {ARGUMENTS, OTHERS}
        for title, rows in groups.items():
            if rows:
                with formatter.section("Options" if alone and title == OTHERS else title):
                    formatter.write_dl(rows)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words after the verb.

        Raises `UsageError` at an option that only other verbs have; else the parser's errors.
        """
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            # the class of this error moved between versions of Typer, its attribute did not
            option = getattr(error, "option_name", None)
            reason = self.refusal(option) if isinstance(option, str) else ""
            if not reason:
                raise
            raise UsageError(reason) from error

    def refusal(self, option: str) -> str:
        """Why this verb does not take an option that `sweep` has; empty for other options."""
        from attnbench.cli.verbs import VERBS, command

        verb = VERBS[self.name or "sweep"]
        known = command("sweep").params
        if option not in [name for parameter in known for name in parameter.opts]:
            return ""
        why = f": {verb.without}" if verb.without else f"; see attnbench {self.name} --help"
        return f"attnbench {self.name} takes no {option}{why}"
