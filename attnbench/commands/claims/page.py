"""What a sweep says of claims: a row for each, with its answer and the evidence."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from attnbench.analysis import Answer, Conclusion
from attnbench.report import grid, phrases

NOTE = (
    "Reproduced: the whole 95 % confidence interval lies where the claim says; contradicted: all of"
    " it lies elsewhere; true of exact counts: the number of multiplications of the mechanism, or"
    " another exact count, grows or compares as claimed; times, if the claim is of them, do not"
    " show it yet. A power of times that is reproduced is the average one over the lengths that are"
    " named; one that is contradicted is so at both ends of them. The source had another machine,"
    " code and sizes: for a number without a range, half to twice of it is allowed."
)
ORDER = (Answer.REPRODUCED, Answer.COUNTED, Answer.NOT_KNOWN, Answer.CONTRADICTED)

# the sentence of a claim, the conclusion on it, and those on its checks that decide it
ClaimRow = tuple[str, Conclusion, Sequence[Conclusion]]


def judged(rows: Sequence[ClaimRow]) -> grid.Table:
    """A row for each claim: answer, evidence, where that was measured, and what would decide it."""
    counts = Counter(conclusion.answer for _, conclusion, _ in rows)
    parts = ", ".join(f"{counts[answer]} {answer}" for answer in ORDER if counts[answer])
    return grid.table(
        rows,
        [
            grid.Column("Claim", lambda row: grid.words(row[0])),
            grid.Column("Answer", lambda row: grid.words(row[1].answer)),
            grid.Column("Evidence", _evidence),
            grid.Column("Measured at", lambda row: grid.words("; ".join(_where(row[2])))),
        ],
        name="claims",
        title=f"{len(rows)} claims: {parts}",
        note=NOTE,
    )


def _evidence(row: ClaimRow) -> grid.Cell:
    """The evidence, and the option that would decide what is not known."""
    _, conclusion, _ = row
    option = f"; {conclusion.decided_by} may decide it" if conclusion.decided_by else ""
    return grid.words(f"{conclusion.reason}{option}")


def _where(checks: Iterable[Conclusion]) -> Iterator[str]:
    """`128 to 8,192; 128 to 2,048 (2 checks)`: the lengths of checks, where they differ."""
    counts: Counter[str] = Counter()
    for one in checks:
        counts[", ".join(phrases.between(one.scope.lengths, one.scope.of_sweep))] += 1
    for lengths, count in counts.items():
        if lengths:
            yield f"{lengths} ({count} checks)" if len(counts) > 1 and count > 1 else lengths
