"""`attnbench report`: figures, tables and pages from a stored sweep; loads no torch."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnbench.cli import console, options

if TYPE_CHECKING:
    from attnbench.analysis.report import Analysis


def report(
    sweep: Annotated[Path, typer.Argument(help="A sweep's folder.")],
    formats: Annotated[str, typer.Option(help="File formats of figures: png, svg, pdf.")] = "png",
    json_: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
    against: Annotated[
        str | None, typer.Option(help="Speed-ups and crossovers with this mechanism or series.")
    ] = None,
    slopes: Annotated[
        bool, typer.Option("--slopes", help="Local exponents below the figure of times.")
    ] = False,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Also how well costs were predicted, and rates of work."),
    ] = False,
) -> None:
    """Make the figures and tables of a stored sweep again."""
    publish(sweep, options.formats(formats), json_, against, slopes, everything)


def publish(
    folder: Path,
    formats: tuple[str, ...],
    as_json: bool,
    against: str | None = None,
    slopes: bool = False,
    everything: bool = False,
) -> None:
    """Write the report into the folder of the journal, and print its main tables."""
    from attnbench.analysis.report import analyse
    from attnbench.render.conditions import warnings
    from attnbench.render.page import report_files
    from attnbench.store import output
    from attnbench.store.journal import load_results

    analysis = analyse(load_results(folder), against)
    if not folder.is_dir():
        folder = folder.parent
    for warning in warnings(analysis):
        console.err().print(f"warning: {warning}")
    for name, content in report_files(analysis, formats, slopes, everything).items():
        output.write(folder / name, content, way_out="the journal is unharmed")
    if as_json:
        # every case with its numbers
        console.data(analysis.cases)
    else:
        show(analysis)
        console.err().print(f"figures and tables are in {folder}; report.html has them all")


def show(analysis: "Analysis") -> None:
    """The tables that matter first, on the terminal."""
    from attnbench.render.page import headlines
    from attnbench.render.terminal import table

    shown = console.out()
    for one in headlines(analysis):
        shown.print(table(one, shown.width))
        shown.print()
