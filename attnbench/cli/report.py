"""`attnbench report`: figures, tables and pages from a stored sweep; loads no torch."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnbench.cli import console, options
from attnbench.cli.options import completer, option
from attnbench.errors import AttnbenchError, UsageError
from attnbench.units import many
from attnbench.workloads import axes

if TYPE_CHECKING:
    from attnbench.analysis.report import Analysis
    from attnbench.records import Sweep
    from attnbench.render.grid import Table

INTACT = "; the journal is intact, and attnbench report --out writes elsewhere"


def report(
    sweep: Annotated[Path, typer.Argument(metavar="SWEEP", help="Folder of the sweep.")],
    formats: str = option(
        "FORMATS",
        "File formats of figures: png, svg, pdf.",
        default="png",
        autocompletion=completer(lambda: axes.FORMATS),
    ),
    json_: bool = options.as_json(),
    against: str | None = option(
        "SERIES", "Baseline of speed-ups and crossovers: a mechanism or series."
    ),
    out: Path | None = option("FOLDER", "Folder for the report.  [default: that of the sweep]"),
) -> None:
    """Redraw the figures and tables of a stored sweep."""
    figures = axes.listed(formats)
    if not set(figures) <= set(axes.FORMATS):
        raise UsageError(f"--formats {formats!r}: figures come as {', '.join(axes.FORMATS)}")
    publish(sweep, figures, json_, against, out)


def publish(
    folder: Path,
    formats: tuple[str, ...] = ("png",),
    as_json: bool = False,
    against: str | None = None,
    out: Path | None = None,
) -> None:
    """Write the report into `out` or the folder of the journal, and print its main tables."""
    from attnbench.analysis.report import analyse
    from attnbench.render.conditions import ended, warnings
    from attnbench.render.page import headlines, report_files, report_tables
    from attnbench.store import output
    from attnbench.store.journal import load_results

    sweep = load_results(folder)
    into = out or (folder if folder.is_dir() else folder.parent)
    with nothing_lost(sweep, folder):
        analysis = analyse(sweep, against)
        tables = report_tables(analysis)
        console.warn(warnings(analysis))
        files = report_files(analysis, formats, tables)
        output.fill(into, files, then=INTACT)
        if as_json:
            console.data(as_data(analysis))
            return
        show(analysis, headlines(analysis, tables))
        if line := ended(analysis):
            console.err().print(line)
        console.err().print(f"figures and tables are in {into}; report.html has them all")


@contextmanager
def nothing_lost(sweep: "Sweep", folder: Path) -> Iterator[None]:
    """Any unexpected error here says that all runs are kept, and how to go on."""
    try:
        yield
    except AttnbenchError:
        raise
    except Exception as error:
        runs = many(sum(run.elapsed_s > 0 for run in sweep.runs), "run")
        error.add_note(f"all {runs} are kept in '{folder}'")
        error.add_note(f"attnbench report '{folder}' makes the report again")
        raise


def as_data(analysis: "Analysis") -> dict[str, Any]:
    """What programs read of an analysis."""
    from attnbench.render.conditions import warnings

    return {
        "answers": asdict(analysis.answers),
        "rows": analysis.rows,
        "warnings": warnings(analysis),
        "cases": analysis.cases,
    }


def show(analysis: "Analysis", tables: Sequence["Table"]) -> None:
    """Print what was found, and tables of an analysis, the first of them next to the sentences."""
    from attnbench.render.answers import TITLE, sentences
    from attnbench.render.names import named
    from attnbench.render.terminal import prose

    terminal = console.out()
    terminal.print(TITLE, style="bold")
    lines = map(": ".join, sentences(analysis.answers).items())
    terminal.print(prose(lines, terminal.width))
    terminal.print()
    for table in named(tables, analysis.answers.series):
        console.show(table)
        terminal.print()
