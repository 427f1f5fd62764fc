"""Reports of sweeps in the terminal and as files, for every verb that has a sweep to show."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from attnbench.commands import console
from attnbench.errors import AttnbenchError
from attnbench.records.storage import output
from attnbench.records.storage.journal import load_results
from attnbench.report import ReportSize
from attnbench.report.grid import Table
from attnbench.report.names import named

if TYPE_CHECKING:
    from attnbench.analysis.report import Analysis
    from attnbench.records import Sweep


INTACT = "; the journal is intact, and attnbench report --out writes elsewhere"


def publish(
    folder: Path,
    sweep: "Sweep | None" = None,
    formats: tuple[str, ...] = ("png",),
    as_json: bool = False,
    against: str | None = None,
    out: Path | None = None,
    size: ReportSize = ReportSize.PAGE,
    slopes: bool = False,
) -> None:
    """Write the report into `out` or the folder of the journal, and print its main tables.

    `sweep` is what that journal holds, if it has been read. `size` is the place that figures and
    LaTeX tables are made for. With `slopes` figures show how steep costs are that grow as N and N².

    Any unexpected error here says that all runs are kept, and how to go on.
    """
    from attnbench.report.page import headlines, report_files, report_tables

    into = out or (folder if folder.is_dir() else folder.parent)
    try:
        analysis = analysed(folder, sweep, against=against)
        if slopes and analysis.cases["seq_len"].nunique() < 2:
            console.warn(["--slopes: figures of one length have none"])
        tables = [*report_tables(analysis)]
        files = report_files(analysis, formats, tables, size, slopes)
        output.fill(into, files, then=INTACT)
        if as_json:
            console.data({
                "answers": asdict(analysis.answers),
                "rows": analysis.rows,
                "conclusions": [asdict(each) for each in analysis.conclusions],
                "warnings": analysis.warnings,
                "cases": analysis.reported,
            })  # fmt: skip
            return
        show(analysis, headlines(analysis, tables))
        console.err().print(f"figures and tables are in {into}; report.html has them all")
    except AttnbenchError:
        raise
    except Exception as error:
        error.add_note(f"all runs are kept in '{folder}'")
        error.add_note(f"attnbench report '{folder}' makes the report again")
        raise


def show(analysis: "Analysis", tables: Sequence[Table]) -> None:
    """Print what was found, and tables of an analysis, the first of them next to the sentences."""
    from attnbench.report.answers import TITLE, sentences
    from attnbench.report.terminal import prose

    terminal = console.out()
    terminal.print(TITLE, style="bold")
    lines = map(": ".join, sentences(analysis).items())
    terminal.print(prose(lines, terminal.width))
    terminal.print()
    for shown in named(tables, analysis.answers.series, analysis.suspects):
        console.show(shown)
        terminal.print()


def analysed(
    folder: Path, sweep: "Sweep | None" = None, of: str = "", against: str | None = None
) -> "Analysis":
    """The analysis of the sweep in a folder, which is read unless it has been.

    Its warnings are printed, after `of` if that is given.
    """
    from attnbench.analysis.report import analyse

    analysis = analyse(sweep or load_results(folder), against)
    console.warn(analysis.warnings, of)
    return analysis
