"""Claims from CSV, one per row, with their checks read by `checks`."""

import csv
import io
from collections.abc import Mapping
from typing import Any

from attnbench.claims.checks import BadCheck, read_check
from attnbench.claims.claim import Claim
from attnbench.claims.published import shipped_text
from attnbench.errors import BadClaims

COLUMNS = ("id", "source", "claim", "check", "scope")
NEEDED = ("id", "claim", "check")


def shipped() -> tuple[Claim, ...]:
    """The claims that the package ships."""
    return read_claims(shipped_text("claims.csv"), "claims.csv")


def read_claims(text: str, name: str) -> tuple[Claim, ...]:
    """The claims of a CSV text with the columns `COLUMNS`, in any order.

    Raises `BadClaims` with a line for each row that cannot be read; `name` is the name of the file.
    """
    rows = csv.DictReader(io.StringIO(text, newline=""))
    claims, problems, lines = list[Claim](), list[str](), dict[str, int]()
    try:
        if sorted(rows.fieldnames or ()) != sorted(COLUMNS):
            raise BadClaims([f"{name}, line 1: expected the columns {', '.join(COLUMNS)}"])
        line = rows.line_num + 1
        for row in rows:
            try:
                claim = _claim(row)
                if claim.id in lines:
                    twice = f"column id: {claim.id!r} is also the id in line {lines[claim.id]}"
                    raise BadCheck(f"{twice}; give each claim a different one")
                lines[claim.id] = line
                claims.append(claim)
            except BadCheck as error:
                problems.append(f"{name}, line {line}, {error}")
            line = rows.line_num + 1
    except csv.Error as error:
        problems.append(
            f"{name}, line {rows.line_num + 1}: {error}; expected comma-separated values"
        )
    if not claims and not problems:
        problems = [f"{name} has no claims; expected one per row below the column names"]
    if problems:
        raise BadClaims(problems)
    return tuple(claims)


def _claim(row: Mapping[str | None, Any]) -> Claim:
    if None in row or None in row.values():
        raise BadCheck(f"columns: expected {len(COLUMNS)}; quote a cell that has commas")
    for column in NEEDED:
        if not row[column].strip():
            raise BadCheck(f"column {column}: empty; expected text")
    try:
        check = read_check(row["check"])
    except BadCheck as error:
        raise BadCheck(f"column check of {row['id']!r}: {error}") from error
    texts = {column: row[column] for column in COLUMNS if column != "check"}
    return Claim(**texts, text=row["check"], check=check)
