"""`attnbench claims`: what papers assert, judged by a stored sweep; loads no torch."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnbench.cli import console, options
from attnbench.cli.completing import completer
from attnbench.cli.options import option, switch
from attnbench.cli.typer_options import shared_option
from attnbench.errors import BadClaims, UsageError
from attnbench.units import many

if TYPE_CHECKING:
    from attnbench.claims.bench import Judged
    from attnbench.claims.claim import Claim

LARGEST = 1 << 22  # bytes of a file of claims
SHOWN = 20  # at most this many unreadable rows are listed one by one


def ids(text: str) -> Iterator[str]:
    """The ids of the shipped claims, read without importing the code that judges them."""
    file = resources.files("attnbench").joinpath("published", "claims.csv")
    rows = csv.DictReader(io.StringIO(file.read_text(encoding="utf-8")))
    yield from dict.fromkeys(row["id"] for row in rows)


def claims(
    sweep: Annotated[
        Path | None,
        typer.Argument(
            metavar="SWEEP", help="Folder of a sweep; without it, the claims are listed."
        ),
    ] = None,
    file: Path | None = option(
        "FILE",
        "CSV file with your own claims, judged in place of the shipped ones.",
        names=("--claims",),
    ),
    only: str = option(
        "PATTERN",
        "Show only claims with this id or mechanism, or a pattern such as flash-*.",
        default="*",
        autocompletion=completer(ids),
    ),
    all_: bool = switch("--all", "Show claims out of scope too; claims.md always lists them."),
    at: str | None = options.variant(),
    formats: str = shared_option("formats", "png"),
    json_: bool = options.as_json(),
) -> None:
    """Judge what papers claim by what a sweep measured; without a sweep, list the claims."""
    from attnbench.claims.published import shipped

    figure_formats = options.read("formats", formats)
    claims = shipped() if file is None else read_own(file)
    chosen = tuple(claim for claim in claims if claim.matches(only))
    if not chosen:
        raise UsageError(
            f"no claim has the id or mechanism {only!r}; `attnbench claims` lists all {len(claims)}"
        )
    if sweep is None:
        show_listing(chosen, json_)
        return
    judged = publish(sweep, claims, figure_formats, file, at)
    shown = [judgement for judgement in judged if judgement.claim in chosen]
    if json_:
        console.data([{**describe(j.claim), **asdict(j.judgement)} for j in shown])
    else:
        show(shown, all_)


def read_own(path: Path) -> Sequence["Claim"]:
    """The claims in a user's file. Raises `UsageError` after listing rows that cannot be read."""
    from attnbench.claims.published import read_claims

    try:
        with open(path, "rb") as stream:
            content = stream.read(LARGEST + 1)
        text = content.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(f"cannot read the claims of {str(path)!r}: {reason}") from error
    if len(content) > LARGEST:
        raise UsageError(f"{str(path)!r} is larger than {LARGEST:,} bytes; split it")
    try:
        return read_claims(text, str(path))
    except BadClaims as error:
        if len(error.problems) == 1:
            raise
        for problem in error.problems[:SHOWN]:
            console.err().print(problem, soft_wrap=True)
        count = len(error.problems)
        raise UsageError(f"{str(path)!r}: {count} rows cannot be read; correct them") from error


def publish(
    folder: Path,
    claims: Sequence["Claim"],
    formats: tuple[str, ...],
    own: Path | None,
    at: str | None,
) -> Sequence["Judged"]:
    """Judge the claims, and write a page, a table and overlays into the sweep's folder."""
    from attnbench.analysis.report import analyse, variant
    from attnbench.claims.bench import MeasuredSweep, judge
    from attnbench.render import delimited
    from attnbench.render.claims import frame, page
    from attnbench.render.overlays import overlays
    from attnbench.store import output
    from attnbench.store.journal import load_results

    analysis = analyse(variant(load_results(folder), at))
    if not folder.is_dir():
        folder = folder.parent
    if own is not None and own.resolve().parent == folder.resolve() and own.stem == "claims":
        raise UsageError(f"the answers would overwrite {str(own)!r}; give it another name")
    console.warn(analysis.sweep.warnings)
    bench = MeasuredSweep(sweep=analysis.sweep, cases=analysis.cases, ratios=analysis.ratios)
    judged = judge(bench, claims)
    folder = folder / (at or "")
    made = {"claims.csv": delimited.frame(frame(judged)), **overlays(bench, formats)}
    pictures = [name for name in made if name.endswith(".png")]
    made["claims.md"] = page(analysis, judged, pictures)
    output.fill(folder, made, then="; the journal is intact")
    console.err().print(f"claims.md, claims.csv and overlays are in {folder}")
    return judged


def show_listing(chosen: Sequence["Claim"], as_json: bool) -> None:
    """Print the claims, their number, and what a sweep must measure to judge all of them."""
    from attnbench.catalogue.registry import names
    from attnbench.claims.bench import wanted
    from attnbench.render.claims import listing

    if as_json:
        console.data([describe(claim) for claim in chosen])
        return
    shown = console.out()
    console.show(listing(chosen))
    sources = len({claim.source.partition(",")[0] for claim in chosen})
    models, known = wanted(chosen), set(names())
    registered = [model for model in models if model.partition(":")[0] in known]
    others = [model for model in models if model not in registered]
    shown.print(f"\n{many(len(chosen), 'claim')} from {many(sources, 'source')}.")
    if registered:
        command = f"attnbench sweep --models {','.join(registered)}"
        shown.print(f"To judge them: {command}", soft_wrap=True)
        shown.print("with the options that the checks name, then attnbench claims with its folder.")
    if others:
        shown.print(f"Not registered, so their claims are out of scope: {', '.join(others)}.")


def show(judged: Sequence["Judged"], everything: bool) -> None:
    """Print the answers and their counts."""
    from attnbench.claims.claim import Answer
    from attnbench.render.claims import answers, counts

    rows = [j for j in judged if everything or j.judgement.answer is not Answer.OUT_OF_SCOPE]
    console.show(answers(rows))
    hidden = "" if len(rows) == len(judged) else "; --all shows those out of scope"
    console.out().print(f"\n{many(len(judged), 'claim')}: {counts(judged)}{hidden}.")


def describe(claim: "Claim") -> dict[str, Any]:
    """A claim as data; its check as text."""
    return {
        "id": claim.id,
        "source": claim.source,
        "claim": claim.claim,
        "check": claim.text,
        "scope": claim.scope,
    }
