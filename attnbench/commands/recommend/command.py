"""`attnbench recommend`: ranks the mechanisms of a stored sweep at one length."""

from dataclasses import asdict
from itertools import starmap
from pathlib import Path
from typing import Annotated

import typer

from attnbench.analysis import Answer
from attnbench.commands import console, options
from attnbench.commands.options import argument, option
from attnbench.commands.publishing import analysed
from attnbench.report import names
from attnbench.running.request import axes


def recommend(
    sweep: Annotated[Path, argument("SWEEP", "Folder of the sweep.")],
    length: str = option("N", "A length of the sweep: 4096 or 4k.", default=...),
    memory: str | None = option("BYTES", "Limit on the peak of one case: 8GiB."),
    json_: bool = options.as_json(),
) -> None:
    """Rank the mechanisms of a stored sweep at a length; exit code 1 if none fits into --memory."""
    from attnbench.commands.recommend.analysis import fitting, recommend, recommendations
    from attnbench.commands.recommend.page import ranking, recommended

    limit = axes.memory(memory, "--memory") if memory is not None else None
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
        console.show(
            *names.with_labels([ranking(rows)], analysis.answers.series, analysis.suspects)
        )
    if limit and not any(one.answer is Answer.FITS for one in fitting(analysis, at, limit)):
        raise typer.Exit(1)
