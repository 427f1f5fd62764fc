"""`attnbench recommend`: which mechanism to take at a length, from a stored sweep; no torch."""

from pathlib import Path
from typing import Annotated

import typer

from attnbench.cli import console, options
from attnbench.cli.options import option
from attnbench.modes import Mode


def recommend(
    sweep: Annotated[Path, typer.Argument(metavar="SWEEP", help="Folder of the sweep.")],
    length: str = option("N", "A length of the sweep: 4096 or 4k.", default=...),
    mode: str | None = option("MODE", f"{', '.join(Mode)}.  [default: each mode of the sweep]"),
    memory: str | None = option("BYTES", "Limit on the peak of one case: 8GiB."),
    json_: bool = options.as_json(),
) -> None:
    """Rank the mechanisms of a stored sweep at one length, and say which were excluded and why.

    The exit code is 1 if no mechanism fits into --memory.
    """
    from attnbench.analysis.recommend import recommend as recommend_
    from attnbench.analysis.report import analyse
    from attnbench.render.conditions import warnings
    from attnbench.render.names import named
    from attnbench.render.recommendation import ranking, recommended
    from attnbench.store.journal import load_results
    from attnbench.workloads import axes

    seq_len = axes.size(length, "--length", axes.LONGEST)
    limit = axes.memory(memory, "--memory") if memory is not None else None
    analysis = analyse(load_results(sweep))
    console.warn(warnings(analysis))
    modes = analysis.modes if mode is None else options.read("mode", mode)
    rows = recommend_(analysis, seq_len, modes, limit)
    if json_:
        console.data(rows)
    for _, each in rows.groupby(["mode", "sizes"], sort=False) if not json_ else ():
        console.out().print(f"{recommended(each, limit)}\n")
        console.show(*named([ranking(each, analysis.sweep.request)], analysis.answers.series))
        console.out().print()
    if limit is not None and rows["basis"].any() and rows["excluded"].all():
        raise typer.Exit(1)
