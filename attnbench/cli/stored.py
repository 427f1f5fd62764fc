"""The verbs that read stored sweeps: `report`, `recommend`, `compare`, `claims`, `merge`."""

from collections.abc import Sequence
from dataclasses import asdict
from importlib.resources import files
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnbench.claims.claim import read_claims
from attnbench.cli import console, options
from attnbench.cli.options import argument, option
from attnbench.errors import AttnbenchError, UsageError, small_file
from attnbench.render.claims import judged
from attnbench.render.grid import Table
from attnbench.render.names import named
from attnbench.store import merging, output
from attnbench.store.journal import load_results
from attnbench.units import few, many
from attnbench.workloads import axes, completion

if TYPE_CHECKING:
    from attnbench.analysis.report import Analysis
    from attnbench.records import Sweep

ALWAYS = frozenset({"csv", "latex", "tex", "markdown", "md", "html", "json"})
INTACT = "; the journal is intact, and attnbench report --out writes elsewhere"


def report(
    sweep: Annotated[Path, argument("SWEEP", "Folder of the sweep.")],
    formats: str = option(
        "FORMATS",
        "Figures as png, svg, pdf; cases for Bencher (bmf) and pyperf.",
        default="png",
        complete=completion.lists((*axes.FORMATS, *axes.EXPORTS)),
    ),
    json_: bool = options.as_json(),
    against: str | None = option(
        "SERIES", "Baseline of speed-ups and crossovers: a mechanism or series."
    ),
    out: Path | None = option("FOLDER", "Folder for the report.  [default: the sweep's]"),
) -> None:
    """Redraw the figures and tables of a stored sweep."""
    if always := ALWAYS & {*axes.listed(formats)}:
        others = ", ".join((*axes.FORMATS, *axes.EXPORTS))
        raise UsageError(
            f"--formats {formats!r}: {min(always)} is always written; further ones are {others}"
        )
    chosen = options.formats(formats, (*axes.FORMATS, *axes.EXPORTS))
    publish(sweep, None, chosen, json_, against, out)


def publish(
    folder: Path,
    sweep: "Sweep | None" = None,
    formats: tuple[str, ...] = ("png",),
    as_json: bool = False,
    against: str | None = None,
    out: Path | None = None,
) -> None:
    """Write the report into `out` or the folder of the journal, and print its main tables.

    `sweep` is what that journal holds, if it has been read.

    Any unexpected error here says that all runs are kept, and how to go on.
    """
    from attnbench.render.page import headlines, report_files, report_tables

    into = out or (folder if folder.is_dir() else folder.parent)
    try:
        analysis = analysed(folder, sweep, against=against)
        tables = [*report_tables(analysis)]
        output.fill(into, report_files(analysis, formats, tables), then=INTACT)
        if as_json:
            console.data({
                "answers": asdict(analysis.answers),
                "rows": analysis.rows,
                "conclusions": [asdict(each) for each in analysis.conclusions],
                "warnings": analysis.warnings,
                "cases": analysis.cases,
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
    from attnbench.render.answers import TITLE, sentences
    from attnbench.render.terminal import prose

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


def recommend(
    sweep: Annotated[Path, argument("SWEEP", "Folder of the sweep.")],
    length: str = option("N", "A length of the sweep: 4096 or 4k.", default=...),
    memory: str | None = option("BYTES", "Limit on the peak of one case: 8GiB."),
    json_: bool = options.as_json(),
) -> None:
    """Rank the mechanisms of a stored sweep at a length; exit code 1 if none fits into --memory."""
    from attnbench.analysis.recommend import fitting, recommend, recommendations
    from attnbench.render.recommendation import ranking, recommended

    limit = axes.memory(memory, "--memory") if memory else None
    analysis = analysed(sweep)
    at = axes.size(length, "--length", axes.LONGEST)
    rows = recommend(analysis, at, limit)
    advice = [*recommendations(analysis, rows)]
    if json_:
        conclusions = [conclusion for conclusion, _ in advice]
        conclusions += fitting(analysis, at, limit) if limit else ()
        console.data({"conclusions": [asdict(one) for one in conclusions], "cases": rows})
    else:
        console.out().print(*starmap(recommended, advice), "", sep="\n")
        console.show(*named([ranking(rows)], analysis.answers.series, analysis.suspects))
    if limit and rows["excluded"].all():
        raise typer.Exit(1)


def compare(
    first: Annotated[Path, argument("SWEEP_A", "Folder of the earlier sweep.")],
    second: Annotated[Path, argument("SWEEP_B", "Folder of the later sweep.")],
    json_: bool = options.as_json(),
) -> None:
    """Compare a sweep with an earlier one: what became slower, faster, larger, or is missing."""
    from attnbench.analysis.compare import compare
    from attnbench.render.comparison import changes

    found = compare(*(analysed(folder, of=str(folder)) for folder in (first, second)))
    if found.differs:
        console.warn([f"the sweeps differ in {'; '.join(found.differs)}"])
    if json_:
        conclusions = [asdict(each) for each in found.conclusions]
        console.data({"differs": found.differs, "conclusions": conclusions, "cases": found.rows})
    else:
        console.show(*named([changes(found)], found.rows["series"], found.suspects))


def claims(
    sweep: Annotated[Path, argument("SWEEP", "Folder of the sweep.")],
    file: Annotated[Path | None, argument("CLAIMS", "CSV file of claims of your own.")] = None,
    json_: bool = options.as_json(),
) -> None:
    """Judge what papers claim by what a sweep measured."""
    from attnbench.claims.judging import judge

    source = file or Path(str(files("attnbench"))) / "published" / "claims.csv"
    try:
        known = read_claims(small_file(source).decode("utf-8-sig"), str(file or source.name))
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read the claims of {str(file)!r}: {reason}") from error
    analysis = analysed(sweep)
    found = [(claim.texts, judge(analysis, claim)) for claim in known]
    if json_:
        console.data([
            {
                **texts,
                "answer": judgement.conclusion.answer,
                "evidence": judgement.conclusion.reason,
                "lengths": judgement.conclusion.scope.lengths,
                "conclusion": asdict(judgement.conclusion),
                "checks": [*map(asdict, judgement.checks)],
            }
            for texts, judgement in found
        ])  # fmt: skip
        return
    rows = [(texts["claim"], one.conclusion, one.deciding) for texts, one in found]
    console.show(judged(rows))


def merge(
    folders: Annotated[list[Path], argument("FOLDER", "Folders of the shards.")],
    out: Path = option("FOLDER", "Folder of the whole sweep.", default=...),
) -> None:
    """Join the shards of one sweep; each keeps its own journal.

    Merges the shards that exist, and names those that are missing, here and in every report. The
    exit code is 0 even if some are missing.
    """
    sweep = merging.merge(folders, out)
    console.warn(sweep.warnings)
    held = many(len(sweep.runs), "run")
    if sweep.shards:
        held = f"{len(sweep.shards)} of {many(sweep.shards[0].of, 'shard')}, {held}"
    if missing := few(sweep.missing):
        text = f"incomplete: {held}; missing {missing}"
    else:
        text = f"{held}, {'complete' if sweep.finished else 'not finished'}"
    console.err().print(f"{text}; attnbench report '{out}' shows the sweep")
