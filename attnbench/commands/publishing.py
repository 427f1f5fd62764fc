"""Reports of sweeps in the terminal and as files, for every verb that has a sweep to show."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from attnbench.commands import console
from attnbench.errors import AttnbenchError
from attnbench.records import storage
from attnbench.report import ReportSize, grid, names

if TYPE_CHECKING:
    from attnbench.analysis import Analysis
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
    from attnbench.report import page

    into = out or (folder if folder.is_dir() else folder.parent)
    try:
        analysis = analysed(folder, sweep, against=against)
        if slopes and analysis.cases["seq_len"].nunique() < 2:
            console.warn(["--slopes: figures of one length have none"])
        tables = [*page.report_tables(analysis)]
        files = page.report_files(analysis, formats, tables, size, slopes)
        storage.output.fill(into, files, then=INTACT)
        if as_json:
            console.data({
                "answers": asdict(analysis.answers),
                "rows": analysis.rows,
                "conclusions": [asdict(each) for each in analysis.conclusions],
                "warnings": analysis.warnings,
                "cases": analysis.reported,
            })  # fmt: skip
            return
        show(analysis, page.headlines(analysis, tables))
        console.err().print(f"figures and tables are in {into}; report.html has them all")
    except AttnbenchError:
        raise
    except Exception as error:
        error.add_note(f"all runs are kept in '{folder}'")
        error.add_note(f"attnbench report '{folder}' makes the report again")
        raise


def show(analysis: "Analysis", tables: Sequence[grid.Table]) -> None:
    """Print what was found, and tables of an analysis, the first of them next to the sentences."""
    from attnbench.report import answers, terminal

    screen = console.out()
    screen.print(answers.TITLE, style="bold")
    lines = map(": ".join, answers.sentences(analysis).items())
    screen.print(terminal.prose(lines, screen.width))
    screen.print()
    for shown in names.with_labels(tables, analysis.answers.series, analysis.suspects):
        console.show(shown)
        screen.print()


def analysed(
    folder: Path, sweep: "Sweep | None" = None, of: str = "", against: str | None = None
) -> "Analysis":
    """The analysis of the sweep in a folder, which is read unless it has been.

    Its warnings are printed, after `of` if that is given.
    """
    from attnbench.analysis import analyse

    analysis = analyse(sweep or storage.load_results(folder), against)
    console.warn(analysis.warnings, of)
    return analysis
