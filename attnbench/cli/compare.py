"""`attnbench compare`: two stored sweeps case by case; loads no torch."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnbench.cli import console

if TYPE_CHECKING:
    from attnbench.analysis.compare import Comparison
    from attnbench.analysis.summary import Frame
    from attnbench.records import Sweep
    from attnbench.render.grid import Table


def compare(
    first: Annotated[Path, typer.Argument(help="A sweep's folder: what was.")],
    second: Annotated[Path, typer.Argument(help="Another's: what is.")],
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Compare times of different machines too.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Every case and metric, not only what changed.")
    ] = False,
    against: Annotated[
        str | None, typer.Option(help="Crossovers with this mechanism or series alone.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
    markdown: Annotated[Path | None, typer.Option(help="Write the tables there.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write every case and metric there.")] = None,
) -> None:
    """Compare a sweep with an earlier one: what became slower, faster, larger, or is missing."""
    from attnbench.analysis import compare, moved
    from attnbench.store import output
    from attnbench.store.journal import load_results

    sweeps = [load_results(folder) for folder in (first, second)]
    warned = dict(zip(("first", "second"), map(warnings, sweeps), strict=True))
    for folder, lines in zip((first, second), warned.values(), strict=True):
        for line in lines:
            console.err().print(f"warning: {folder}: {line}", soft_wrap=True)
    found = compare.compare(*sweeps, anyway=anyway)
    crossings = moved.moved(sweeps[0], sweeps[1], against)
    if found.refusals and not anyway:
        console.err().print("times were not compared; --anyway compares them all the same")
    shown = tables(found, crossings, everything)
    if markdown:
        output.write(markdown, as_markdown(shown, warned), stream=True)
    if csv:
        from attnbench.render import delimited

        output.write(csv, delimited.frame(found.rows), stream=True)
    show_json(found, crossings, warned) if json_ else show(shown)


def warnings(sweep: "Sweep") -> list[str]:
    """What the sweep's own report warns of."""
    from attnbench.analysis.summary import summary
    from attnbench.render import conditions

    return list(conditions.warnings(sweep, summary(sweep)))


def tables(found: "Comparison", crossings: "Frame", everything: bool) -> "list[Table]":
    """What changed, crossovers that moved, and on demand every case."""
    from attnbench.render import comparison

    shown = [comparison.news(found)]
    shown += [comparison.crossovers(crossings)] if len(crossings) else []
    return shown + [comparison.every(found)] * everything


def show(shown: "Sequence[Table]") -> None:
    from attnbench.render.terminal import table

    terminal = console.out()
    for one in shown:
        terminal.print(table(one, terminal.width))
        terminal.print()


def show_json(found: "Comparison", crossings: "Frame", warned: Mapping[str, Sequence[str]]) -> None:
    """Numbers in full precision, with both sweeps' warnings and why times were not compared."""
    data = {"refusals": found.refusals, "cases": found.rows, "crossovers_moved": crossings}
    console.data({"warnings": warned, **data})


def as_markdown(shown: "Sequence[Table]", warned: Mapping[str, Sequence[str]]) -> bytes:
    """The tables below both sweeps' warnings."""
    from attnbench.render.markdown import escape, table

    above = [
        f"- Warning of the {name} sweep: {escape(line)}"
        for name, lines in warned.items()
        for line in lines
    ]
    return "\n".join([*above, *[""] * bool(above), *map(table, shown)]).encode()
