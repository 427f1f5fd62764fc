"""What papers assert and what a sweep says of it, as tables and a page."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import cleandoc
from itertools import groupby
from types import MappingProxyType

import numpy as np
import pandas as pd

from attnbench import units
from attnbench.analysis.report import Analysis
from attnbench.claims.checks import functions
from attnbench.claims.claim import Answer, Claim, Judgement, Number
from attnbench.claims.judge import Judged
from attnbench.metrics import Unit
from attnbench.render import markdown
from attnbench.render.conditions import conditions, warnings
from attnbench.render.grid import Table, words

# numbers that a table shows of each claim; the most telling come first
SHOWN = 3

TEXTS: Mapping[Unit, Callable[[float], str]] = MappingProxyType(
    {
        Unit.RATIO: units.ratio,
        Unit.EXPONENT: units.exponent,
        Unit.COUNT: lambda value: units.length(round(value)),
    }
)

NOTE = (
    "A claim is reproduced only if the whole 95 % confidence interval lies on its side, not "
    "reproduced only if it lies wholly on the other, and else it cannot be told; “==” allows a "
    "factor of two. Hardware, code and sizes are not the source's: shapes are compared. Where a "
    "claim names no form or options, those of the sweep are judged, and the numbers name them."
)


def listing(claims: Sequence[Claim]) -> Table:
    """Every claim with its source and check."""
    return Table(
        name="claims",
        title="What papers assert",
        columns=("Id", "Claim", "Source", "Check"),
        rows=tuple((words(c.id), words(c.claim), words(c.source), words(c.text)) for c in claims),
    )


def answers(judged: Sequence[Judged], title: str = "What papers assert, judged") -> Table:
    """One row per claim: the answer, the lengths behind it, and the numbers or why there are none.

    The note counts the answers.
    """
    rows = tuple(
        (
            words(f"{one.claim.id}: {one.claim.claim}"),
            words(one.judgement.answer),
            words(span(one.judgement)),
            words(reasons(one.judgement)),
        )
        for one in judged
    )
    columns = ("Claim", "Answer", "Lengths", "Behind it")
    return Table(name="claims", title=title, columns=columns, rows=rows, note=NOTE)


def counts(judged: Sequence[Judged]) -> str:
    """`5 reproduced, 2 not reproduced, 3 cannot tell, 70 out of scope`."""
    found = [one.judgement.answer for one in judged]
    return ", ".join(f"{found.count(answer)} {answer}" for answer in Answer)


def reasons(judgement: Judgement) -> str:
    """The reason and the most telling numbers."""
    shown = judgement.numbers[:SHOWN]
    more = len(judgement.numbers) - len(shown)
    parts = [judgement.why] if judgement.why else []
    for what, group in groupby(shown, key=lambda number: number.what):
        parts.append(f"{what}: {', '.join(map(_number, group))}")
    return "; ".join(parts) + (f"; and {more} more" if more else "")


def span(judgement: Judgement) -> str:
    """`512 to 4,096 (4)`: the lengths behind an answer and how many they are."""
    found = judgement.lengths
    if not found:
        return units.NOTHING
    if len(found) == 1:
        return units.length(found[0])
    return f"{units.length(found[0])} to {units.length(found[-1])} ({len(found)})"


def frame(judged: Sequence[Judged]) -> pd.DataFrame:
    """Everything of each claim, one row a claim, for CSV."""
    rows = [
        {
            "id": one.claim.id,
            "answer": str(one.judgement.answer),
            "why": one.judgement.why,
            "numbers": "; ".join(
                f"{number.what}: {_number(number)}" for number in one.judgement.numbers
            ),
            "from_len": min(one.judgement.lengths, default=np.nan),
            "to_len": max(one.judgement.lengths, default=np.nan),
            "lengths": len(one.judgement.lengths),
            "source": one.claim.source,
            "claim": one.claim.claim,
            "check": one.claim.text,
            "scope": one.claim.scope,
        }
        for one in judged
    ]
    return pd.DataFrame(rows)


def page(analysis: Analysis, judged: Sequence[Judged], pictures: Sequence[str]) -> bytes:
    """Conditions, overlays, one table for each answer, and what each predicate means."""
    title = f"# {markdown.escape(analysis.sweep.name)}: what papers assert"
    lines = [title, "", counts(judged) + ".", ""]
    lines += [f"- Warning: {markdown.escape(line)}" for line in warnings(analysis)]
    lines += [f"- {markdown.escape(line)}" for line in conditions(analysis)]
    lines += ["", markdown.escape(NOTE), ""]
    lines += [f"![{name.partition('.')[0]}]({name})" for name in pictures] + [""]
    for answer in Answer:
        rows = [one for one in judged if one.judgement.answer is answer]
        grid = _sources(answers(rows, answer.capitalize()), rows)
        lines.append(markdown.table(grid))
    return ("\n".join([*lines, *_definitions(judged)]) + "\n").encode()


def _sources(grid: Table, judged: Sequence[Judged]) -> Table:
    """The table with source, check and scope in place of the answer, which is its title."""
    rows = tuple(
        (row[0], *row[2:], words(one.claim.text), words(f"{one.claim.source}; {one.claim.scope}"))
        for row, one in zip(grid.rows, judged, strict=True)
    )
    columns = ("Claim", "Lengths", "Behind it", "Check", "Source and scope")
    return Table(name=grid.name, title=grid.title, columns=columns, rows=rows)


def _definitions(judged: Sequence[Judged]) -> Iterator[str]:
    """What each predicate means that a check uses, from its definition."""
    yield "## How each predicate is judged\n"
    calls = (call for one in judged for call in one.claim.check)
    texts = {f.__name__: cleandoc(f.__doc__ or "") for call in calls for f in functions(call)}
    for name, text in sorted(texts.items()):
        yield f"- `{name}`: {markdown.escape(' '.join(text.split()).replace('`', ''))}"


def _number(number: Number) -> str:
    text = TEXTS.get(number.unit, units.plain)
    shown = text(number.value)
    # ends that round to the value itself, as those of counted numbers, say nothing
    ends = [text(end).removesuffix("×") for end in (number.low, number.high) if units.known(end)]
    if len(ends) == 2 and set(ends) != {shown.removesuffix("×")}:
        shown = units.interval(shown, *ends)
    return shown + (f" at {units.length(number.length)}" if number.length is not None else "")
