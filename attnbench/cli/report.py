"""`attnbench report`: figures, tables and pages from a stored sweep; loads no torch."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnbench.cli import console, options

if TYPE_CHECKING:
    from attnbench.analysis.summary import Frame
    from attnbench.records import Sweep


def report(
    sweep: Annotated[Path, typer.Argument(help="A sweep's folder.")],
    formats: Annotated[str, typer.Option(help="Of figures: png, svg, pdf.")] = "png",
    json_: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
    against: Annotated[
        str | None, typer.Option(help="Speed-ups and crossovers with this mechanism or series.")
    ] = None,
    slopes: Annotated[
        bool, typer.Option("--slopes", help="Local exponents below the figure of times.")
    ] = False,
) -> None:
    """Make the figures and tables of a stored sweep again."""
    publish(sweep, options.formats(formats), json_, against, slopes)


def publish(
    folder: Path,
    formats: tuple[str, ...],
    as_json: bool,
    against: str | None = None,
    slopes: bool = False,
) -> None:
    """Write everything that follows from the journal beside it, and print the summary."""
    from attnbench.analysis.summary import summary
    from attnbench.render.conditions import warnings
    from attnbench.render.grid import clean
    from attnbench.render.page import report_files
    from attnbench.store import output
    from attnbench.store.journal import load_results

    stored = load_results(folder)
    cases = summary(stored)
    place = folder if folder.is_dir() else folder.parent
    for warning in warnings(stored, cases):
        console.err().print(f"warning: {clean(warning)}")
    for name, content in report_files(stored, formats, against, slopes, cases).items():
        output.write(place / name, content, way_out="the journal is unharmed")
    if as_json:
        # every case with its numbers
        console.data(cases)
    else:
        show(stored, against, cases)
        console.err().print(f"figures and tables are in {place}; report.html has them all")


def show(stored: "Sweep", against: str | None, cases: "Frame") -> None:
    """The tables that matter first, on the terminal."""
    from attnbench.render.page import headlines
    from attnbench.render.terminal import table

    shown = console.out()
    for one in headlines(stored, against, cases):
        shown.print(table(one, shown.width))
        shown.print()
