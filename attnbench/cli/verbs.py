"""The verbs of the command line, one file each, as a Typer application."""

from collections.abc import Callable

import typer

from attnbench.cli import (
    check,
    doctor,
    explain,
    models,
    stored,
    sweep,
)
from attnbench.cli.bytes import bytes_
from attnbench.cli.options import Verb
from attnbench.version import __version__

HELP = "What does each attention mechanism cost, on this machine, at this length?"

EXIT_CODES = """Exit codes: 0 done, 1 check found something slower or larger or nothing fits
recommend --memory, 2 bad usage or nothing could be measured, 3 unsure under check --strict or it
lost a process, 4 shards of sweep --on are missing, 130 interrupted (143 by TERM, 129 by HUP)."""


def verbs() -> tuple[tuple[Callable[..., None], str], ...]:
    """Each verb with its line in the list of commands, which cuts what is longer than these."""
    return (
        (sweep.sweep, "Measure time and memory against length, and draw them."),
        (models.models, "List mechanisms and their forms, or show one in full."),
        (stored.report, "Draw the figures and tables of a stored sweep again."),
        (stored.recommend, "Rank the mechanisms of a sweep at one length."),
        (stored.compare, "Say what changed between two sweeps."),
        (explain.explain, "Say why one mechanism takes longer than another."),
        (stored.claims, "Judge what papers claim by what a sweep measured."),
        (check.check, "Fail if anything is slower or larger than it was."),
        (bytes_, "Count what a model keeps of its context, by its config."),
        (stored.merge, "Join the shards of a sweep."),
        (doctor.doctor, "Show device, versions, peak rates and usable forms."),
    )


def application() -> typer.Typer:
    """The command line with all verbs."""
    app = typer.Typer(
        help=HELP,
        epilog=EXIT_CODES,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # rich would triple the time of --help
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(about)
    for verb, line in verbs():
        app.command(verb.__name__.rstrip("_"), cls=Verb, short_help=line)(verb)
    return app


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
