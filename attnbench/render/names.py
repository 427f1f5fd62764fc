"""The names of series in text and tables: as papers and figures name them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

from attnbench.records import split_sizes
from attnbench.render.grid import Cell, Table, clean
from attnbench.render.styles import labels, mechanism_of

# the headings of columns of series
SERIES = frozenset({"Mechanism", "Faster", "Than", "Measured"})


def compared_with(series: Iterable[str], baselines: Sequence[str]) -> str:
    """The label of the baseline; of several, which differ in their sizes, without these."""
    if len(baselines) == 1:
        return labels(series)[baselines[0]]
    plain = labels(split_sizes(name)[0] for name in series)
    return " or ".join(dict.fromkeys(plain[split_sizes(name)[0]] for name in baselines))


def in_full(names: Mapping[str, str]) -> str:
    """`In full: linformer[rank=16]; bigbird:eager.`: series whose labels omit something."""
    longer = []
    for name, label in names.items():
        further = split_sizes(name)[0].removeprefix(mechanism_of(name))
        if any(part not in label for part in re.split(r"[:[\],]", further)):
            longer.append(clean(name))
    return f"In full: {'; '.join(longer)}." if longer else ""


def named(tables: Sequence[Table], series: Iterable[str]) -> list[Table]:
    """The tables with labels in place of the identifiers of series and mechanisms.

    A note that the next table repeats is shown only there.
    """
    names, following = labels(series), [table.note for table in tables[1:]]

    def shown(heading: str, cell: Cell) -> Cell:
        if heading not in SERIES:
            return cell
        return cell._replace(text=names.get(cell.text) or labels([cell.text])[cell.text])

    return [
        replace(
            table,
            rows=tuple(tuple(map(shown, table.columns, row)) for row in table.rows),
            note="" if table.note == later else table.note,
        )
        for table, later in zip_longest(tables, following)
    ]
