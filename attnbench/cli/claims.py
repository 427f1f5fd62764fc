"""`attnbench claims`: what papers assert, judged by a stored sweep; loads no torch."""

from pathlib import Path
from typing import Annotated

import typer

from attnbench.cli import console, options
from attnbench.cli.options import option
from attnbench.errors import UsageError
from attnbench.units import many

NOTE = (
    "Reproduced: the whole 95 % confidence interval lies where the claim says; contradicted: all of"
    " it lies elsewhere. What agrees by count holds for the FLOPs that mechanisms declare; its time"
    " was not judged. Machine, code and sizes are not the source's: a number alone allows a factor"
    " of two."
)


def claims(
    sweep: Annotated[Path, typer.Argument(metavar="SWEEP", help="Folder of the sweep.")],
    file: Path | None = option(
        "FILE", "CSV file with your own claims, in place of the papers'.", names=("--claims",)
    ),
    json_: bool = options.as_json(),
) -> None:
    """Judge what papers claim by what a sweep measured."""
    from attnbench.analysis.report import analyse
    from attnbench.claims.claim import read_claims, shipped
    from attnbench.claims.judging import Answer, judge
    from attnbench.render.grid import Column, table
    from attnbench.store.journal import load_results

    known = shipped() if file is None else read_claims(content(file), str(file))
    analysis = analyse(load_results(sweep))
    console.warn(analysis.sweep.warnings)
    rows = [
        {"id": c.id, "claim": c.claim, "source": c.source, "scope": c.scope}
        | judge(analysis, c)._asdict()
        for c in known
    ]
    if json_:
        console.data(rows)
        return
    columns = [Column.words(name.capitalize(), name) for name in ("claim", "answer", "evidence")]
    console.show(table(rows, columns, name="claims", title="Claims of papers", note=NOTE))
    answers = [row["answer"] for row in rows]
    counts = (f"{answers.count(answer)} {answer}" for answer in Answer if answer in answers)
    console.out().print(f"\n{many(len(rows), 'claim')}: {', '.join(counts)}.")


def content(path: Path) -> str:
    """The text of a file. Raises `UsageError`."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(f"cannot read the claims of {str(path)!r}: {reason}") from error
