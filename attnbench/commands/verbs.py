"""The verbs of the command line, as data: the module of one is loaded when it is called."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from attnbench.commands.command import Command
from attnbench.errors import UsageError
from attnbench.version import __version__

HELP = "What does each attention mechanism cost, on this machine, at this length?"

EXIT_CODES = """Exit codes: 0 done, 1 check found something slower, larger or different, judge a
kernel that is wrong or unsteady, models --verify a check that fails, or nothing fits recommend
--memory, 2 bad usage or nothing could be measured, 3 unsure under check --strict or it lost a
process, or judge could not try what a verdict needs, 4 shards of sweep --on are missing,
130 interrupted (143 by TERM, 129 by HUP)."""

HELP_OPTIONS = ("-h", "--help")


@dataclass(frozen=True, kw_only=True)
class Verb:
    """A verb of the command line.

    module: which has its function.
    function: whose signature is its arguments and options, and whose docstring is its help.
    summary: one line for the list of verbs, the first one of that docstring.
    without: why it does not take options of `sweep` that it lacks, if there is a reason.
    """

    module: str
    function: str
    summary: str
    without: str = ""


VERBS: Mapping[str, Verb] = MappingProxyType({
    "sweep": Verb(
        module="attnbench.commands.sweep.command",
        function="sweep",
        summary="Measure time and memory of mechanisms over sequence lengths, and draw the figure.",
    ),
    "models": Verb(
        module="attnbench.commands.models.command",
        function="models",
        summary="List mechanisms with class, complexity and forms, or show one in full.",
    ),
    "report": Verb(
        module="attnbench.commands.report.command",
        function="report",
        summary="Redraw the figures and tables of a stored sweep.",
    ),
    "recommend": Verb(
        module="attnbench.commands.recommend.command",
        function="recommend",
        summary="Rank the mechanisms of a stored sweep at a length; exit code 1 if none fits into"
        " --memory.",
    ),
    "compare": Verb(
        module="attnbench.commands.compare.command",
        function="compare",
        summary="Compare a sweep with an earlier one: what became slower, faster, larger, or is"
        " missing.",
    ),
    "explain": Verb(
        module="attnbench.commands.explain.command",
        function="explain",
        summary="Explain why A takes longer than B: times and counts of core, attention and model.",
    ),
    "judge": Verb(
        module="attnbench.commands.judge.command",
        function="judge",
        summary="Judge kernels: is each right, steady under stress, and faster than the form here?",
    ),
    "claims": Verb(
        module="attnbench.commands.claims.command",
        function="claims",
        summary="Judge what papers claim by what a sweep measured.",
    ),
    "check": Verb(
        module="attnbench.commands.check.command",
        function="check",
        summary="Compare code with another revision or with stored counts; exit code 1 if it is"
        " worse.",
    ),
    "bytes": Verb(
        module="attnbench.commands.model.bytes_command",
        function="bytes_",
        summary="Count a model's weights, what its layers keep of their context, and requests that"
        " fit.",
    ),
    "model": Verb(
        module="attnbench.commands.model.command",
        function="model",
        summary="Measure each kind of layer of a model and its feed-forwards, and add up what they"
        " cost.",
        without="what it measures follows from the model's file",
    ),
    "merge": Verb(
        module="attnbench.commands.sweep.merge_command",
        function="merge",
        summary="Join the shards of one sweep; each keeps its own journal.",
    ),
    "doctor": Verb(
        module="attnbench.commands.doctor.command",
        function="doctor",
        summary="Show device, versions, measured peak rates, and the forms that do not run here.",
    ),
})  # fmt: skip


class Deferred(TyperCommand):
    """A verb in the list of verbs, which becomes the verb itself where it is called."""

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **more: Any) -> Any:
        """The context of the verb itself, with what was written after it.

        Raises `UsageError` at an option that only `sweep` has, and the parser's errors.
        """
        assert self.name is not None, "it is made with one"
        made = command(self.name)
        try:
            return made.make_context(info_name, args, parent=parent, **more)
        except Exception as error:
            # the classes of these errors moved between versions of Typer, their attributes did not
            option = getattr(error, "option_name", None)
            if option is None:
                raise
            if option in names_of_options("sweep") - names_of_options(self.name):
                why = VERBS[self.name].without
                rest = f": {why}" if why else f"; see attnbench {self.name} --help"
                raise UsageError(f"attnbench {self.name} takes no {option}{rest}") from error
            if getattr(error, "ctx", option) is None:
                error.ctx = typer.Context(made, parent=parent, info_name=info_name)  # type: ignore[attr-defined]
            raise


def names_of_options(verb: str) -> set[str]:
    """The names of the options of a verb, as they are written."""
    return {name for parameter in command(verb).params for name in parameter.opts}


def application() -> TyperGroup:
    """The command line with all verbs, of which none is loaded."""
    app = typer.Typer(
        help=HELP,
        epilog=EXIT_CODES,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # rich would triple the time of --help
        context_settings={"help_option_names": [*HELP_OPTIONS]},
    )
    app.callback(invoke_without_command=True)(about)
    group: Any = typer.main.get_command(app)
    for name, verb in VERBS.items():
        # the list of verbs cuts a help text, but not a short one
        group.add_command(Deferred(name=name, short_help=verb.summary))
    return group  # type: ignore[no-any-return]


@cache
def command(name: str) -> TyperCommand:
    """A verb with its options; this imports its module."""
    verb = VERBS[name]
    function: Callable[..., None] = getattr(importlib.import_module(verb.module), verb.function)
    app = typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": [*HELP_OPTIONS]},
    )
    app.command(name, cls=Command)(function)
    made: Any = typer.main.get_command(app)
    return made  # type: ignore[no-any-return]


def show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"attnbench {__version__}")
        raise typer.Exit


def about(
    context: typer.Context,
    version: bool = typer.Option(
        False, "--version", is_eager=True, callback=show_version, help="Show the version."
    ),
) -> None:
    """Options before the verb; without a verb, the help."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)
