"""`attnbench compare`: two stored sweeps case by case; loads no torch."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnbench.cli import console
from attnbench.errors import StoreError

if TYPE_CHECKING:
    from attnbench.analysis.compare import Comparison
    from attnbench.analysis.summary import Frame
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
    from attnbench.store.journal import load

    sweeps = [load(folder) for folder in (first, second)]
    for folder, sweep in zip((first, second), sweeps, strict=True):
        for warning in sweep.warnings:
            console.err().print(f"warning: {folder}: {warning}")
    found = compare.compare(*sweeps, anyway=anyway)
    crossings = moved.moved(*sweeps, against=against)
    if found.refusals and not anyway:
        console.err().print("times were not compared; --anyway compares them all the same")
    shown = tables(found, crossings, everything)
    if markdown:
        write(markdown, as_markdown(shown))
    if csv:
        from attnbench.render import delimited

        write(csv, delimited.frame(found.rows))
    show_json(found, crossings) if json_ else show(shown)


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


def show_json(found: "Comparison", crossings: "Frame") -> None:
    """Numbers in full precision, with the reasons why times were not compared."""
    data = {"refusals": found.refusals, "cases": found.rows, "crossovers_moved": crossings}
    console.data(data)


def as_markdown(shown: "Sequence[Table]") -> bytes:
    from attnbench.render.markdown import table

    return "\n".join(map(table, shown)).encode()


def write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise StoreError(f"cannot write {str(path)!r}: {error.strerror}") from error
