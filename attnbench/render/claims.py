"""Claims of papers and how a sweep judges them, as tables and a page."""

from collections.abc import Iterator, Sequence
from inspect import cleandoc
from itertools import groupby

import numpy as np
import pandas as pd

from attnbench import units
from attnbench.analysis.report import Analysis
from attnbench.claims.bench import Judged
from attnbench.claims.claim import Answer, Claim, Judgement, Number
from attnbench.metrics import Unit
from attnbench.render import markdown
from attnbench.render.conditions import conditions, warnings
from attnbench.render.grid import Cell, Table, quantity, words

# how many numbers a table shows for each claim; the most informative come first
SHOWN = 3

NOTE = (
    "A claim is reproduced only if the whole 95 % confidence interval lies on the claimed side, "
    "not reproduced only if all of it lies on the other; otherwise the answer is “cannot tell”. "
    "A number alone allows a factor of two. Hardware, code and sizes are not those of the source, "
    "so shapes are compared. Where a claim names no form or options, those of the sweep are judged "
    "and named: of several forms the one measured at the most lengths, then the first. Claims of "
    "papers whose softmax attention stored its scores are judged by transformer:eager, which does."
)


def listing(claims: Sequence[Claim]) -> Table:
    """Every claim with its source and check."""
    return Table(
        name="claims",
        title="Claims of papers",
        columns=("Id", "Claim", "Source", "Check"),
        rows=tuple((words(c.id), words(c.claim), words(c.source), words(c.text)) for c in claims),
    )


def answers(judged: Sequence[Judged]) -> Table:
    """One row per claim: the answer, the lengths behind it, and its number or why there is none."""
    return Table(
        name="claims",
        title="Claims of papers, judged",
        columns=("Claim", "Answer", "Lengths", "Evidence"),
        rows=tuple(_row(one, most=1) for one in judged),
        note=NOTE,
    )


def _row(judged: Judged, most: int = SHOWN) -> tuple[Cell, Cell, Cell, Cell]:
    claim, judgement = judged
    return (
        words(f"{claim.id}: {claim.claim}"),
        words(judgement.answer),
        words(span(judgement)),
        words(reasons(judgement, most)),
    )


def counts(judged: Sequence[Judged]) -> str:
    """`5 reproduced, 2 not reproduced, 3 cannot tell, 70 out of scope`."""
    given = [judgement.answer for _, judgement in judged]
    return ", ".join(f"{given.count(answer)} {answer}" for answer in Answer)


def reasons(judgement: Judgement, most: int = SHOWN) -> str:
    """The reason and the most informative numbers."""
    shown = judgement.numbers[:most]
    more = len(judgement.numbers) - len(shown)
    parts = [judgement.why] if judgement.why else []
    for label, group in groupby(shown, key=lambda number: number.what):
        parts.append(f"{label}: {', '.join(map(_number, group))}")
    return "; ".join(parts) + (f"; and {more} more" if more else "")


def span(judgement: Judgement) -> str:
    """`512 to 4,096 (4)`: the lengths behind an answer and their number."""
    if not (lengths := judgement.lengths):
        return units.NOTHING
    return units.between(lengths[0], lengths[-1]) + f" ({len(lengths)})" * (len(lengths) > 1)


def frame(judged: Sequence[Judged]) -> pd.DataFrame:
    """Everything about each claim, one row per claim, for CSV."""
    rows = [
        {
            "id": claim.id,
            "answer": str(judgement.answer),
            "why": judgement.why,
            "numbers": "; ".join(f"{n.what}: {_number(n)}" for n in judgement.numbers),
            "from_len": min(judgement.lengths, default=np.nan),
            "to_len": max(judgement.lengths, default=np.nan),
            "lengths": len(judgement.lengths),
            "source": claim.source,
            "claim": claim.claim,
            "check": claim.text,
            "scope": claim.scope,
        }
        for claim, judgement in judged
    ]
    return pd.DataFrame(rows)


def page(analysis: Analysis, judged: Sequence[Judged], pictures: Sequence[str]) -> bytes:
    """Conditions, overlays, one table for each answer, and the definition of each predicate."""
    sections = [markdown.escape(NOTE) + "\n"]
    for answer in Answer:
        rows = []
        for one in judged:
            if one.judgement.answer is answer:
                claim, (name, _, lengths, evidence) = one.claim, _row(one)
                source = words(f"{claim.source}; {claim.scope}")
                rows.append((name, lengths, evidence, words(claim.text), source))
        columns = ("Claim", "Lengths", "Evidence", "Check", "Source and scope")
        title = answer.capitalize()
        table = Table(name="claims", title=title, columns=columns, rows=tuple(rows))
        sections.append(markdown.table(table))
    return markdown.page(
        f"{analysis.sweep.name}: claims of papers",
        warnings(analysis),
        conditions(analysis),
        pictures,
        [*sections, *_definitions(judged), ""],
        lead=counts(judged) + ".",
    )


def _definitions(judged: Sequence[Judged]) -> Iterator[str]:
    """How each predicate that a check uses is judged, from its docstring."""
    yield "## How each predicate is judged\n"
    used = {check.predicate for claim, _ in judged for check in claim.checks}
    texts = {predicate.__name__: cleandoc(predicate.__doc__ or "") for predicate in used}
    for name, text in sorted(texts.items()):
        yield f"- `{name}`: {markdown.escape(' '.join(text.split()).replace('`', ''))}"


def _number(number: Number) -> str:
    value, low, high, less = number.value, number.low, number.high, ""
    if number.unit is Unit.RATIO and 0 < value < 1 and not high >= 1:
        value, low, high, less = 1 / value, 1 / high, 1 / low, " less"
    shown = quantity(value, number.unit) + less
    ends = [quantity(end, number.unit) for end in (low, high) if units.has_value(end)]
    # exact numbers, and intervals that round to the value itself, are shown without an interval
    if len(ends) == 2 and set(ends) != {shown.removesuffix(less)}:
        shown = units.interval(shown, *(end.removesuffix("×") for end in ends))
    return shown + (f" at {units.count(number.length)}" if number.length is not None else "")
