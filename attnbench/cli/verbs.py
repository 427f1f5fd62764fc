"""The verbs of the command line, one file each, as a Typer application."""

from collections.abc import Callable

import typer

from attnbench.cli import check, doctor, explain, judge, model, models, stored, sweep
from attnbench.cli.bytes import bytes_
from attnbench.cli.options import Verb
from attnbench.version import __version__

HELP = "What does each attention mechanism cost, on this machine, at this length?"

EXIT_CODES = """Exit codes: 0 done, 1 check found something slower, larger or different, judge a
kernel that is wrong or unsteady, or nothing fits recommend --memory, 2 bad usage or nothing could
be measured, 3 unsure under check --strict or it lost a process, or judge could not try all, 4
shards of sweep --on are missing, 130 interrupted (143 by TERM, 129 by HUP)."""


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
    verbs: tuple[Callable[..., None], ...] = (
        *(sweep.sweep, models.models, stored.report, stored.recommend, stored.compare),
        *(explain.explain, judge.judge, stored.claims, check.check, bytes_, model.model),
        *(stored.merge, doctor.doctor),
    )
    for verb in verbs:
        # the list of verbs cuts a docstring, but not what it is given
        first = (verb.__doc__ or "").partition("\n")[0]
        # which are those of sweep
        further = {"ignore_unknown_options": verb in (explain.explain, model.model)}
        name = verb.__name__.rstrip("_")
        app.command(name, cls=Verb, short_help=first, context_settings=further)(verb)
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
