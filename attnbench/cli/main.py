"""The command `attnbench`: one verb a file; what they share of errors and exit codes."""

import sys

import typer

from attnbench import __version__
from attnbench.cli import check, claims, compare, console, doctor, models, report, selftest, sweep
from attnbench.errors import AttnbenchError
from attnbench.render.grid import clean

LONGEST = 2_000  # characters of an error: what was asked may be as long as a system lets it be

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


def one_line(text: str) -> str:
    """An error as it may be shown: nothing in it commands a terminal; a long one has no middle."""
    line, half = clean(text), LONGEST // 2
    return line if len(line) <= LONGEST else f"{line[:half]} … {line[-half:]}"


def main() -> None:
    """Run the command line and leave with its exit code."""
    console.forgive()
    try:
        application()()
    except AttnbenchError as error:
        typer.echo(f"attnbench: {one_line(str(error))}", err=True)
        sys.exit(error.exit_code)
    except OSError as error:
        # what no room put into words: a full disk below standard output, or no more processes
        typer.echo(f"attnbench: the system refused: {one_line(str(error))}", err=True)
        console.abandon()
        sys.exit(AttnbenchError.exit_code)
