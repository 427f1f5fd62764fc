"""Tables as CSV: counts in full, other numbers to 12 digits; safe to open in a spreadsheet."""

import csv
import io
from collections.abc import Iterable, Iterator

from attnbench.analysis.summary import Frame
from attnbench.render.grid import Cell, Table, Value, clean, snake_case
from attnbench.units import NOTHING

# a spreadsheet reads a cell that begins with one of these, or its wide form, as a formula
FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def table(table: Table) -> bytes:
    """Numbers as numbers; no column mixes them with words.

    A column of estimates is followed by its bounds, a column of numbers with words or `≤ 128` in
    some cells by a column of those. A table across lengths becomes one row for each series and
    length.
    """
    keys = table.keys or tuple(map(snake_case, table.columns))
    if table.across:
        bounded = any(cell.low is not None for row in table.rows for cell in row)
        ends = [table.across, *[f"{table.across}_low", f"{table.across}_high"] * bounded, "note"]
        return _written([[keys[0], "seq_len", *ends], *_melted(table, bounded)])
    head: list[Value] = []
    rows: list[list[Value]] = [[] for _ in table.rows]
    for name, is_numeric, *cells in zip(keys, table.numeric, *table.rows, strict=True):
        bounded = any(cell.low is not None for cell in cells)
        noted = is_numeric and any(map(_note, cells))
        head += [name, *[f"{name}_low", f"{name}_high"] * bounded, *[f"{name}_note"] * noted]
        for row, cell in zip(rows, cells, strict=True):
            value, low = (None, None) if cell.at_most else (cell.value, cell.low)
            row += [value if is_numeric else _note(cell)]
            row += [low, cell.high] * bounded + [_note(cell)] * noted
    return _written([head, *rows])


def _melted(table: Table, bounded: bool) -> Iterator[list[Value]]:
    for row in table.rows:
        for length, cell in zip(table.columns[1:], row[1:], strict=True):
            seq_len = int(length.replace(",", ""))
            ends = [cell.low, cell.high] * bounded
            yield [row[0].text, seq_len, cell.value, *ends, _note(cell)]


def _note(cell: Cell) -> str:
    """The words of a cell that has no number, or only a bound."""
    is_value = cell.is_number and not cell.at_most
    return "" if is_value or cell.text == NOTHING else cell.text


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
