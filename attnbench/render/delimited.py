"""Tables as CSV in full precision, safe to open in a spreadsheet."""

import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Iterator

from attnbench.analysis.summary import Frame
from attnbench.render.grid import Cell, Table, Value, clean
from attnbench.units import NOTHING

# a spreadsheet takes a cell that begins so for a formula; some take the wide forms of these too
FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def table(table: Table) -> bytes:
    """The numbers behind the texts, in columns of numbers alone or of words alone.

    A column of estimates is followed by its bounds, and one with words among its numbers by those
    words. Lengths that go across go down in the file: one line for each cell.
    """
    keys = table.keys or tuple(map(key, table.columns))
    if table.across:
        ends = (table.across, f"{table.across}_low", f"{table.across}_high", "note")
        return _written([[keys[0], "seq_len", *ends], *_melted(table)])
    head: list[Value] = []
    lines: list[list[Value]] = [[] for _ in table.rows]
    for name, is_numeric, *cells in zip(keys, table.numeric, *table.rows, strict=True):
        bounded = any(cell.low is not None for cell in cells)
        noted = is_numeric and any(map(_note, cells))
        head += [name, *[f"{name}_low", f"{name}_high"] * bounded, *[f"{name}_note"] * noted]
        for line, cell in zip(lines, cells, strict=True):
            line += [cell.value if is_numeric else _note(cell)]
            line += [cell.low, cell.high] * bounded + [_note(cell)] * noted
    return _written([head, *lines])


def key(label: str) -> str:
    """`core_gflop_s` of `Core, GFLOP/s`."""
    plain = unicodedata.normalize("NFKD", label).lower().replace("∝ n^", "exponent")
    return re.sub(r"[^a-z0-9]+", "_", plain).strip("_") or "value"


def _melted(table: Table) -> Iterator[list[Value]]:
    for row in table.rows:
        for length, cell in zip(table.columns[1:], row[1:], strict=True):
            at = int(length.replace(",", ""))
            yield [row[0].text, at, cell.value, cell.low, cell.high, _note(cell)]


def _note(cell: Cell) -> str:
    """The words of a cell that has no number."""
    return "" if cell.is_number or cell.text == NOTHING else cell.text


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
