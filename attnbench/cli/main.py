"""The command `attnbench`: one verb a file; what they share of errors and exit codes."""

import sys

import typer

from attnbench import __version__
from attnbench.cli import check, claims, compare, doctor, models, report, selftest, sweep
from attnbench.errors import AttnbenchError

HELP = """What does each attention mechanism cost, on this machine, at this length?

Exit codes: 0 done, 1 a gate found something slower or larger, 2 bad usage or could not run,
3 contaminated or unsure under --strict, 130 interrupted."""


def application() -> typer.Typer:
    """The verbs."""
    app = typer.Typer(
        help=HELP,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # rich would triple the time of --help
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(about)
    for verb in (
        sweep.sweep,
        models.models,
        report.report,
        compare.compare,
        claims.claims,
        check.check,
        selftest.selftest,
        doctor.doctor,
    ):
        app.command()(verb)
    return app


def tell(asked: bool) -> None:
    if asked:
        typer.echo(f"attnbench {__version__}")
        raise typer.Exit


def about(
    version: bool = typer.Option(
        False, "--version", is_eager=True, callback=tell, help="Show the version."
    ),
) -> None:
    """What stands before a verb."""


def main() -> None:
    """Run the command line and leave with its exit code."""
    try:
        application()()
    except AttnbenchError as error:
        typer.echo(f"attnbench: {error}", err=True)
        sys.exit(error.exit_code)
