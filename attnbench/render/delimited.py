"""Tables as CSV in full precision, safe to open in a spreadsheet."""

import csv
import io
from collections.abc import Iterable

from attnbench.analysis.summary import Frame
from attnbench.render.grid import Table, Value, clean

# a spreadsheet takes a cell that begins so for a formula; some take the wide forms of these too
FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def table(table: Table) -> bytes:
    """The numbers behind the texts; a column of estimates has its ends beside it."""
    count = range(len(table.columns))
    bounded = [any(row[i].low is not None for row in table.rows) for i in count]
    head: list[Value] = []
    for name, wide in zip(table.columns, bounded, strict=True):
        head += [name, f"{name} low", f"{name} high"] if wide else [name]
    lines = [head]
    for row in table.rows:
        line: list[Value] = []
        for cell, wide in zip(row, bounded, strict=True):
            shown = cell.text if cell.value is None else cell.value
            line += [shown, cell.low, cell.high] if wide else [shown]
        lines.append(line)
    return _written(lines)


def frame(frame: Frame) -> bytes:
    """A whole DataFrame, one line per row, without its index."""
    records = frame.astype(object).where(frame.notna(), None)
    return _written([list(frame.columns), *records.itertuples(index=False)])


def guarded(value: Value) -> Value:
    """The value; text is cleaned, and marked as text by an apostrophe if it could be a formula."""
    if not isinstance(value, str):
        return value
    text = clean(value)
    return f"'{text}" if text.lstrip().startswith(FORMULA) else text


def _written(lines: Iterable[Iterable[Value]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([map(guarded, line) for line in lines])
    return text.getvalue().encode()
