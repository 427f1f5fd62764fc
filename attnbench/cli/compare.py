"""`attnbench compare`: two stored sweeps case by case; loads no torch."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnbench.cli import console, options
from attnbench.cli.options import option, switch

if TYPE_CHECKING:
    from attnbench.render.grid import Table


def compare(
    first: Annotated[Path, typer.Argument(metavar="SWEEP_A", help="Folder of the earlier sweep.")],
    second: Annotated[Path, typer.Argument(metavar="SWEEP_B", help="Folder of the later sweep.")],
    anyway: bool = switch("--anyway", "Compare times of different machines too."),
    everything: bool = switch("--all", "Show every case and metric, not only what changed."),
    against: str | None = option("SERIES", "Only crossovers with this mechanism or series."),
    at: str | None = options.variant(),
    json_: bool = options.as_json(),
    markdown: Path | None = option("FILE", "Write the tables as Markdown."),
    html: Path | None = option("FILE", "Write a page with charts and every case, as one file."),
    csv: Path | None = option("FILE", "Write every case as CSV."),
) -> None:
    """Compare a sweep with an earlier one: what became slower, faster, larger, or is missing."""
    from attnbench.analysis.compare import compare
    from attnbench.analysis.report import analyse, variant
    from attnbench.render import delimited
    from attnbench.render.comparison import all_cases, changes, moved_crossovers, web_page
    from attnbench.render.conditions import warnings
    from attnbench.store import output
    from attnbench.store.journal import load_results

    output.refuse_unwritable(markdown, html, csv)
    before, after = (variant(load_results(folder), at) for folder in (first, second))
    analyses = (analyse(before, against), analyse(after))
    warned = dict(zip(("first", "second"), map(warnings, analyses), strict=True))
    for folder, lines in zip((first, second), warned.values(), strict=True):
        for line in lines:
            console.err().print(f"warning: {folder}: {line}", soft_wrap=True)
    comparison = compare(*analyses, anyway=anyway)
    if comparison.refusals and not anyway:
        console.err().print("times were not compared; --anyway compares them all the same")
    shown = [changes(comparison)]
    shown += [moved_crossovers(comparison)] * (len(comparison.moved) > 0)
    shown += [all_cases(comparison)] * everything
    if markdown:
        output.write(markdown, as_markdown(shown, warned), stream=True)
    if html:
        names = (str(first), str(second))
        output.write(html, web_page(names, comparison, warned), stream=True)
    if csv:
        output.write(csv, delimited.frame(comparison.rows), stream=True)
    if json_:
        # in full precision, with both sweeps' warnings and why times were not compared
        data = {"refusals": comparison.refusals, "cases": comparison.rows}
        console.data({"warnings": warned, **data, "crossovers_moved": comparison.moved})
        return
    for table in shown:
        console.show(table)
        console.out().print()


def as_markdown(shown: "Sequence[Table]", warned: Mapping[str, Sequence[str]]) -> bytes:
    """The tables, after both sweeps' warnings."""
    from attnbench.render.markdown import escape, table

    warnings = [
        f"- Warning of the {name} sweep: {escape(line)}"
        for name, lines in warned.items()
        for line in lines
    ]
    return "\n".join([*warnings, *[""] * bool(warnings), *map(table, shown)]).encode()
