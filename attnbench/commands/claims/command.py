"""`attnbench claims`: what papers claim, judged by what a sweep measured."""

from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from attnbench.commands import console, options
from attnbench.commands.claims.claim import read_claims
from attnbench.commands.claims.page import judged
from attnbench.commands.options import argument
from attnbench.commands.publishing import analysed
from attnbench.errors import UsageError, small_file


def claims(
    sweep: Annotated[Path, argument("SWEEP", "Folder of the sweep.")],
    file: Annotated[Path | None, argument("CLAIMS", "CSV file of claims of your own.")] = None,
    json_: bool = options.as_json(),
) -> None:
    """Judge what papers claim by what a sweep measured."""
    from attnbench.commands.claims.judging import judge_claim

    source = file or Path(str(files("attnbench"))) / "records" / "published" / "claims.csv"
    try:
        asserted = read_claims(small_file(source).decode("utf-8-sig"), str(file or source.name))
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read the claims of {str(source)!r}: {reason}") from error
    analysis = analysed(sweep)
    judgements = [(claim.texts, judge_claim(analysis, claim)) for claim in asserted]
    if json_:
        console.data([
            {
                **texts,
                "answer": judgement.conclusion.answer,
                "evidence": judgement.conclusion.reason,
                "lengths": judgement.conclusion.scope.lengths,
                "conclusion": asdict(judgement.conclusion),
                "checks": [*map(asdict, judgement.checks)],
            }
            for texts, judgement in judgements
        ])  # fmt: skip
        return
    rows = [(texts["claim"], one.conclusion, one.deciding) for texts, one in judgements]
    console.show(judged(rows))
