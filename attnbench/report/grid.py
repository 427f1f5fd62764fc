"""The tables that every writer takes: each cell carries its text and the number behind it."""

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from attnbench.errors import clean
from attnbench.records import metrics, units

Value = str | int | float | bool | None


class Cell(NamedTuple):
    """The text shown and its value in full precision; `low` and `high` bound an estimate.

    The value of a text that was cut is all of it. The `best` of a column are written in bold.
    `lengths` are those at which an estimate was measured, and `reason` says in full why a number is
    missing.
    """

    text: str
    value: Value = None
    low: float | None = None
    high: float | None = None
    best: bool = False
    lengths: str = ""
    reason: str = ""

    @property
    def is_number(self) -> bool:
        """Whether the cell is aligned to the right."""
        return isinstance(self.value, int | float) and not isinstance(self.value, bool)


EMPTY = Cell(units.NOTHING)
LONGEST = 160  # characters of a reason that a page shows
BEST = "Bold: the best at each length, and what ties with it."


@dataclass(frozen=True, kw_only=True)
class Table:
    """A titled grid; `name` is the stem of its files and the target of links, `note` a
    sentence below it.

    `keys` are the names of the columns in a CSV file, by default derived from `columns`. `across`
    is set where the columns after the first are lengths: the file then has a row for each of their
    cells, with the numbers in a column of that name. The first `leading` columns tell the rows
    apart, so that on a narrow terminal they start every block of columns.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    keys: tuple[str, ...] = ()
    across: str = ""
    leading: int = 1

    @property
    def bold_note(self) -> str:
        """The note below a table whose best cells are bold."""
        best = any(cell.best for row in self.rows for cell in row)
        return " ".join(filter(None, (self.note, BEST * best)))

    @property
    def aligned(self) -> list[bool]:
        """Which columns are aligned to the right: numbers, and lengths of which none was run."""
        return [(bool(self.across) and i > 0) or n for i, n in enumerate(self.numeric)]

    @property
    def numeric(self) -> list[bool]:
        """Which columns hold numbers."""
        return [any(row[i].is_number for row in self.rows) for i in range(len(self.columns))]


class Report(NamedTuple):
    """What the page and the Markdown of a sweep hold: lines of plain text, and tables.

    `answers` are sentences by their headings, `leading` the tables that stand beside them, and
    `cells` the names of the tables with the numbers behind an answer, by its heading. `lead` is the
    sentence above the chart, by its heading.
    """

    title: str
    answers: Mapping[str, str]
    warnings: Sequence[str]
    conditions: Sequence[str]
    leading: Sequence[Table]
    tables: Sequence[Table]
    cells: Mapping[str, str] = MappingProxyType({})
    lead: Mapping[str, str] = MappingProxyType({})


class Column(NamedTuple):
    """A column of a table: its heading, its cell in a row, and its name in a CSV file.

    The name is by default derived from the heading.
    """

    heading: str
    cell: Callable[[Any], Cell]
    key: str = ""

    @classmethod
    def words(cls, heading: str, name: str, key: str = "") -> Self:
        """What stands under this name in a row, as text."""
        return cls(heading, lambda row: words(row[name]), key or name)

    @classmethod
    def number(cls, heading: str, name: str, text: Callable[[Any], str] = units.plain) -> Self:
        """What stands under this name in a row, as a number that `text` writes."""
        return cls(heading, lambda row: number(row[name], text), name)


def table(rows: Iterable[Any], columns: Sequence[Column], **further: Any) -> Table:
    """The table with a row of these columns for each of `rows`, and these `further` fields."""
    return Table(
        columns=tuple(column.heading for column in columns),
        rows=tuple(tuple(column.cell(row) for column in columns) for row in rows),
        keys=tuple(column.key or snake_case(column.heading) for column in columns),
        **further,
    )


def bounded(point: float, low: float, high: float) -> Cell:
    """A number with its confidence interval, rounded to the digits that it supports."""
    text = units.estimate(point, low, high)
    return Cell(text, none_if_nan(float(point)), none_if_nan(low), none_if_nan(high))


def number(value: Any, text: Callable[[Any], str] = units.plain) -> Cell:
    """A number as `text` writes it."""
    return Cell(text(value), none_if_nan(value))


def quantity(value: float, unit: metrics.Unit) -> str:
    """A number with its unit."""
    texts = {
        metrics.Unit.SECONDS: units.seconds,
        metrics.Unit.BYTES: units.size,
        metrics.Unit.FLOPS: units.flops,
    }
    texts |= {
        metrics.Unit.COUNT: units.count,
        metrics.Unit.RATIO: units.ratio,
        metrics.Unit.EXPONENT: units.exponent,
    }
    return texts[unit](value) if unit in texts else f"{units.plain(value)} {unit}"


def words(text: object) -> Cell:
    """A cell of text, without characters that could control a terminal."""
    return Cell(clean(str(text)))


def snake_case(heading: str) -> str:
    """`core_gflop_s` of `Core, GFLOP/s`."""
    plain = unicodedata.normalize("NFKD", heading).lower()
    return re.sub(r"[^a-z0-9]+", "_", plain).strip("_") or "value"


def cut(text: str) -> str:
    """The text, or its first `LONGEST` characters and an ellipsis."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST].rstrip()} …"


def none_if_nan(value: float | None) -> float | None:
    """A number or None for NaN."""
    return None if value is None or math.isnan(value) else value
