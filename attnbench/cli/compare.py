"""`attnbench compare`: two stored sweeps case by case; loads no torch."""

from pathlib import Path
from typing import Annotated

import typer

from attnbench.cli import console, options


def compare(
    first: Annotated[Path, typer.Argument(metavar="SWEEP_A", help="Folder of the earlier sweep.")],
    second: Annotated[Path, typer.Argument(metavar="SWEEP_B", help="Folder of the later sweep.")],
    anyway: bool = options.switch("--anyway", "Compare costs of different machines too."),
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
    for folder, analysis in zip((first, second), analyses, strict=True):
        console.warn(warnings(analysis), str(folder))
    found = compare(*analyses, anyway=anyway)
    if found.refusals and not anyway:
        console.err().print("costs of this machine were not compared; --anyway compares them too")
    if json_:
        console.data({"refusals": found.refusals, "cases": found.rows})
    else:
        console.show(*named([changes(found)], found.rows["series"]))
