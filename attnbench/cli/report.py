"""`attnbench report`: figures, tables and pages from a stored sweep; loads no torch."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from attnbench.cli import console, options
from attnbench.errors import UsageError
from attnbench.render.sizes import Size


def report(
    sweeps: Annotated[
        list[Path], typer.Argument(help="Folder of a sweep, or those of several devices.")
    ],
    formats: options.FormatsOption = "png",
    size: options.SizeOption = Size.TEXT,
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
    out: Annotated[
        Path | None, typer.Option(help="Folder for the report on several devices.")
    ] = None,
) -> None:
    """Make the figures and tables of a stored sweep again, or of several devices side by side."""
    figures = options.formats(formats)
    if len(sweeps) == 1:
        if out is not None:
            raise UsageError("--out is for several sweeps; the report of one goes into its folder")
        with uncollected():
            publish(sweeps[0], figures, json_, against, slopes, everything, size)
        return
    if against or slopes or everything:
        raise UsageError("--against, --slopes and --all are for one sweep; report each by itself")
    if out is None:
        raise UsageError("several sweeps need --out, the folder for their report")
    with uncollected():
        publish_devices(sweeps, out, figures, json_, size)


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage collection: a report is soon over, and a tenth of it was spent on collecting."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def publish_devices(
    folders: Sequence[Path], out: Path, formats: tuple[str, ...], as_json: bool, size: Size
) -> None:
    """Write the report of several devices into `out`, and print its tables."""
    from attnbench.analysis.devices import device_names, side_by_side
    from attnbench.analysis.report import analyse
    from attnbench.render.page import devices_files, devices_tables
    from attnbench.store import output
    from attnbench.store.journal import load_results

    loaded = [load_results(folder) for folder in folders]
    cases = side_by_side(loaded)
    analyses = dict(zip(device_names(loaded), map(analyse, loaded), strict=True))
    files = devices_files(analyses, cases, formats, size)
    with output.explained(f"cannot write '{out}'", "choose another folder with --out"):
        out.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        output.write(out / name, content, way_out="the journals are unharmed")
    if as_json:
        console.data(cases)
        return
    for table in devices_tables(analyses, cases):
        console.show(table)
        console.out().print()
    console.err().print(f"figures and tables are in {out}; report.html has them all")


def publish(
    folder: Path,
    formats: tuple[str, ...],
    as_json: bool,
    against: str | None = None,
    slopes: bool = False,
    everything: bool = False,
    size: Size = Size.TEXT,
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
    for name, content in report_files(analysis, formats, slopes, everything, size).items():
        output.write(folder / name, content, way_out="the journal is unharmed")
    if as_json:
        console.data(analysis.cases)
        return
    for table in headlines(analysis):
        console.show(table)
        console.out().print()
    console.err().print(f"figures and tables are in {folder}; report.html has them all")
