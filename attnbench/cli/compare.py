"""`attnbench compare`: two stored sweeps case by case; loads no torch."""

from pathlib import Path
from typing import Annotated

import typer

from attnbench.cli import console, options
from attnbench.cli.options import switch


def compare(
    first: Annotated[Path, typer.Argument(metavar="SWEEP_A", help="Folder of the earlier sweep.")],
    second: Annotated[Path, typer.Argument(metavar="SWEEP_B", help="Folder of the later sweep.")],
    anyway: bool = switch("--anyway", "Compare times of different machines too."),
    json_: bool = options.as_json(),
) -> None:
    """Compare a sweep with an earlier one: what became slower, faster, larger, or is missing."""
    from attnbench.analysis.compare import compare
    from attnbench.analysis.report import analyse
    from attnbench.render.comparison import changes
    from attnbench.render.conditions import warnings
    from attnbench.render.names import named
    from attnbench.store.journal import load_results

    analyses = [analyse(load_results(folder)) for folder in (first, second)]
    warned = dict(zip(("first", "second"), map(warnings, analyses), strict=True))
    for folder, lines in zip((first, second), warned.values(), strict=True):
        console.warn(lines, str(folder))
    comparison = compare(*analyses, anyway=anyway)
    if comparison.refusals and not anyway:
        console.err().print("times were not compared; --anyway compares them all the same")
    if json_:
        data = {"refusals": comparison.refusals, "cases": comparison.rows}
        console.data({"warnings": warned, **data})
        return
    console.show(*named([changes(comparison)], comparison.rows["series"]))
