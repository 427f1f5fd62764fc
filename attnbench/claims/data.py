"""What papers print, as it is shipped: `published/claims.csv` and the tables beside it."""

import csv
import io
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.resources import files

import pandas as pd

from attnbench.claims.claim import Check
from attnbench.claims.cursor import BadCheck
from attnbench.claims.reading import parse

COLUMNS = ("id", "source", "claim", "check", "scope")


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a source asserts: one plain sentence, and the same as a check.

    `scope` says how the source measured, on what, and whether it says so or its numbers do.
    """

    id: str
    source: str
    claim: str
    check: Check
    scope: str

    def matches(self, pattern: str) -> bool:
        """Whether the pattern fits the id or a mechanism that the check names."""
        return any(fnmatchcase(name, pattern) for name in (self.id, *self.check.mechanisms))


def claims(text: str | None = None) -> tuple[Claim, ...]:
    """Every claim, of the shipped file unless its text is given.

    Raises `BadCheck` with the id of a row that does not parse, `ValueError` if an id comes twice.
    """
    rows = csv.DictReader(io.StringIO(_shipped("claims.csv") if text is None else text))
    found = tuple(_claim(row) for row in rows)
    names = [claim.id for claim in found]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise ValueError(f"claims.csv has two rows of the id {twice[0]!r}; ids are unique")
    return found


def published(name: str) -> pd.DataFrame:
    """The measurements of one table, `lra_table2`: one number a row, `value` NaN for `oom`.

    Columns: source, table, hardware, mechanism, form, length, metric, value, note.
    """
    frame = pd.read_csv(io.StringIO(_shipped(f"{name}.csv")), keep_default_na=False)
    for column in ("length", "value"):
        frame[column] = pd.to_numeric(frame[column], errors="coerce").astype(float)
    return frame


def _claim(row: dict[str, str]) -> Claim:
    if set(row) != set(COLUMNS):
        raise BadCheck(f"claims.csv: a row has not the columns {', '.join(COLUMNS)}")
    try:
        check = parse(row["check"])
    except BadCheck as error:
        raise BadCheck(f"claims.csv, {row['id']}: {error}; mend its check") from error
    return Claim(**{**row, "check": check})  # type: ignore[arg-type]


def _shipped(name: str) -> str:
    return files("attnbench").joinpath("published", name).read_text(encoding="utf-8")
