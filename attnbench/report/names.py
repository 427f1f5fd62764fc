"""The names of series in text and tables: as papers and figures name them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest

from attnbench.errors import clean
from attnbench.records import Name
from attnbench.report.grid import Cell, Table
from attnbench.report.styles import SUSPECT, labels

# the headings of columns of series
SERIES = frozenset({"Mechanism", "Faster", "Than", "Measured"})


MARK = f"{SUSPECT} suspect: shown, and not ranked, as the warnings explain."


def baseline_label(
    series: Iterable[str], baselines: Sequence[str], suspects: Collection[str] = ()
) -> str:
    """The label of the baseline; of several, which differ in their sizes, without these."""
    if len(baselines) == 1:
        return labels(series, suspects)[baselines[0]]
    plain = labels(Name.read(name).plain for name in series)
    return " or ".join(dict.fromkeys(plain[Name.read(name).plain] for name in baselines))


def full_names(names: Mapping[str, str]) -> str:
    """`In full: linformer[rank=16]; bigbird:eager.`: series whose labels omit something."""
    longer = []
    for name, label in names.items():
        parts = Name.read(name)
        if any(part not in label for part in (parts.form, *parts.options.split(","))):
            longer.append(clean(name))
    return f"In full: {'; '.join(longer)}." if longer else ""


def with_labels(
    tables: Sequence[Table], series: Iterable[str], suspects: Collection[str] = ()
) -> list[Table]:
    """The tables with labels in place of the identifiers of series and mechanisms.

    Those of `suspects` are marked, and a note says what the mark means. A note that the next table
    repeats is shown only there.
    """
    names = labels(series, suspects)
    noted = [replace(table, note=_note(table, suspects)) for table in tables]

    def label(heading: str, cell: Cell) -> Cell:
        if heading not in SERIES:
            return cell
        return cell._replace(text=names.get(cell.text) or labels([cell.text])[cell.text])

    return [
        replace(
            table,
            rows=tuple(tuple(map(label, table.columns, row)) for row in table.rows),
            note="" if later and table.note == later.note else table.note,
        )
        for table, later in zip_longest(noted, noted[1:])
    ]


def _note(table: Table, suspects: Collection[str]) -> str:
    """The note of a table, and what its mark means if it has a row of a suspect series."""
    marked = any(name in suspects for row in table.rows for name in row_series(table, row))
    return f"{table.note} {MARK}".strip() if marked else table.note


def row_series(table: Table, row: Sequence[Cell]) -> list[str]:
    """The identifiers of the series in a row of a table, which has no labels yet."""
    return [
        cell.text for heading, cell in zip(table.columns, row, strict=True) if heading in SERIES
    ]


def suspects_last(table: Table, suspects: Collection[str]) -> Table:
    """The table with the rows of suspect series at its end."""
    rows = sorted(table.rows, key=partial(_is_suspect, table, suspects))
    return replace(table, rows=tuple(rows))


def _is_suspect(table: Table, suspects: Collection[str], row: Sequence[Cell]) -> bool:
    return any(name in suspects for name in row_series(table, row))
