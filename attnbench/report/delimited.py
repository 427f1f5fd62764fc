"""Tables as CSV: counts in full, other numbers to 12 digits; safe to open in a spreadsheet."""

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from attnbench.analysis import Frame
from attnbench.errors import clean
from attnbench.records import units
from attnbench.report.grid import Cell, Table, Value, snake_case
from attnbench.report.names import row_series

# a spreadsheet reads a cell that begins with one of these, or its wide form, as a formula
FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def table(table: Table, suspects: Mapping[str, str] = MappingProxyType({})) -> bytes:
    """Numbers as numbers, in full precision; no column mixes them with words.

    Of a sweep with `suspects`, which are not ranked for a reason, by their names, a last column has
    the reason.

    A column of estimates is followed by its bounds and by the lengths at which they were measured,
    a column of numbers with words in some cells by a column of those, and of the reasons behind
    them. A table across lengths becomes one row for each series and length.
    """
    across = table.across
    table = _long(table) if table.across else table
    keys = table.keys or tuple(map(snake_case, table.columns))
    columns: dict[str, list[Value]] = {}
    for i, (key, numeric) in enumerate(zip(keys, table.numeric, strict=True)):
        cells = [row[i] for row in table.rows]
        columns[key] = [cell.value if numeric else _words(cell) for cell in cells]
        if any(cell.low is not None for cell in cells):
            columns[f"{key}_low"] = [cell.low for cell in cells]
            columns[f"{key}_high"] = [cell.high for cell in cells]
        if (numeric and any(map(_words, cells))) or key == across:
            columns[f"{key}_note"] = [*map(_words, cells)]
        if any(cell.lengths for cell in cells):
            columns[f"{key}_lengths"] = [cell.lengths for cell in cells]
        if key == across or any(cell.reason for cell in cells):
            columns[f"{key}_reason"] = [cell.reason for cell in cells]
    if suspects and (named := [row_series(table, row) for row in table.rows]):
        reasons = [[suspects[name] for name in names if name in suspects] for names in named]
        columns["suspect"] = ["; ".join(names) for names in reasons]
    return _written([columns, *zip(*columns.values(), strict=True)])


def _long(table: Table) -> Table:
    """A table by length as one with a row for each series and length."""
    rows = (
        (row[0], Cell(length, int(length.replace(",", ""))), cell)
        for row in table.rows
        for length, cell in zip(table.columns[1:], row[1:], strict=True)
    )
    keys = (table.keys[0], "seq_len", table.across)
    return replace(
        table, columns=(table.columns[0], *keys[1:]), keys=keys, rows=tuple(rows), across=""
    )


def _words(cell: Cell) -> str:
    """The words of a cell that has no number, in full where they are cut."""
    if isinstance(cell.value, str):
        return cell.value
    return "" if cell.is_number or cell.text == units.NOTHING else cell.text


def frame(frame: Frame) -> bytes:
    """A whole DataFrame, one line per row, without its index."""
    records = frame.astype(object).where(frame.notna(), None)
    return _written([list(frame.columns), *records.itertuples(index=False)])


def guarded(value: Value) -> Value:
    """The value; text is cleaned, and starts with an apostrophe where it could be a formula.

    A number that is not whole keeps 12 digits; later ones are rounding, as in 1.0000000000000129.
    """
    if isinstance(value, float) and not value.is_integer():
        return float(f"{value:.12g}")
    if not isinstance(value, str):
        return value
    text = clean(value)
    return f"'{text}" if text.lstrip().startswith(FORMULA) else text


def _written(rows: Iterable[Iterable[Value]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([map(guarded, row) for row in rows])
    return text.getvalue().encode()
