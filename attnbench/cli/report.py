"""`attnbench report`: figures, tables and pages from a stored sweep; loads no torch."""

from pathlib import Path
from typing import Annotated

import typer

from attnbench.cli import console, options


def report(
    sweep: Annotated[Path, typer.Argument(help="Folder of a sweep.")],
    formats: options.FormatsOption = "png",
    json_: options.JsonOption = False,
    against: Annotated[
        str | None, typer.Option(help="Speed-ups and crossovers over this mechanism or series.")
    ] = None,
    slopes: Annotated[
        bool, typer.Option("--slopes", help="Draw local exponents below the figure of times.")
    ] = False,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Add how well costs were predicted, and the rates of work."),
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
    from attnbench.render.page import headlines, report_files
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
        console.data(analysis.cases)
        return
    for table in headlines(analysis):
        console.show(table)
        console.out().print()
    console.err().print(f"figures and tables are in {folder}; report.html has them all")
