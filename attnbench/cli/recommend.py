"""`attnbench recommend`: which mechanism to take at a length, from a stored sweep; no torch."""

from pathlib import Path
from typing import Annotated

import typer

from attnbench.cli import console
from attnbench.cli.options import as_json, option


def recommend(
    sweep: Annotated[Path, typer.Argument(metavar="SWEEP", help="Folder of the sweep.")],
    length: str = option("N", "A length of the sweep: 4096 or 4k.", default=...),
    memory: str | None = option("BYTES", "Limit on the peak of one case: 8GiB."),
    json_: bool = as_json(),
) -> None:
    """Rank the mechanisms of a stored sweep at a length; exit code 1 if none fits into --memory."""
    from attnbench.analysis.recommend import recommend
    from attnbench.analysis.report import analyse
    from attnbench.render.conditions import warnings
    from attnbench.render.names import named
    from attnbench.render.recommendation import ranking, recommended
    from attnbench.store.journal import load_results
    from attnbench.workloads import axes

    limit = axes.memory(memory, "--memory") if memory else None
    analysis = analyse(load_results(sweep))
    console.warn(warnings(analysis))
    rows = recommend(analysis, axes.size(length, "--length", axes.LONGEST), limit)
    if json_:
        console.data(rows)
    else:
        blocks = rows.groupby(["mode", "sizes"], sort=False)
        console.out().print(*(recommended(block) for _, block in blocks), "", sep="\n")
        console.show(*named([ranking(rows)], analysis.answers.series))
    if limit and rows["excluded"].all():
        raise typer.Exit(1)
