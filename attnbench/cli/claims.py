"""`attnbench claims`: what papers assert, judged by a stored sweep; loads no torch."""

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from attnbench.cli import console, options
from attnbench.cli.options import option
from attnbench.errors import UsageError

NOTE = (
    "Reproduced: the whole 95 % confidence interval lies where the claim says; contradicted: all of"
    " it lies elsewhere. What agrees by count holds for declared FLOPs. Machine, code and sizes are"
    " not the source's: a number alone allows a factor of two."
)


def claims(
    sweep: Annotated[Path, typer.Argument(metavar="SWEEP", help="Folder of the sweep.")],
    file: Path | None = option("FILE", "CSV file of your own instead.", names=("--claims",)),
    json_: bool = options.as_json(),
) -> None:
    """Judge what papers claim by what a sweep measured."""
    from attnbench.analysis.report import analyse
    from attnbench.claims.claim import read_claims
    from attnbench.claims.judging import Answer, judge
    from attnbench.render.grid import Column, table
    from attnbench.store.journal import load_results

    source = file or files("attnbench") / "published" / "claims.csv"
    try:
        known = read_claims(source.read_text("utf-8-sig"), str(file or source.name))
    except (OSError, UnicodeError) as error:
        raise UsageError(f"cannot read the claims of {str(file)!r}: {error}") from error
    analysis = analyse(load_results(sweep))
    console.warn(analysis.sweep.warnings)
    rows = [{**claim.texts, **judge(analysis, claim)._asdict()} for claim in known]
    if json_:
        console.data(rows)
        return
    columns = [Column.words(name.title(), name) for name in ("claim", "answer", "evidence")]
    answers = [row["answer"] for row in rows]
    counts = (f"{answers.count(answer)} {answer}" for answer in Answer if answer in answers)
    title = f"{len(rows)} claims: {', '.join(counts)}"
    console.show(table(rows, columns, name="claims", title=title, note=NOTE))
