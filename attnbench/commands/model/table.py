"""The table of how many bytes of its context a model keeps."""

from collections.abc import Sequence
from math import inf

from attnbench.commands.model.context import ALL, INSTEAD, BytesRow, ContextQuery
from attnbench.records import units
from attnbench.report.grid import EMPTY, Cell, Table, number, words


def kept(rows: Sequence[BytesRow], query: ContextQuery, title: str) -> Table:
    """One row per kind of layer, and those of the whole model."""
    columns = {
        "Kind of layer": [words(row.kind) for row in rows],
        "Layers": [number(row.layers, units.count) for row in rows],
        "Per token": [Cell(f"{row.per_token:,.10g} B", row.per_token) for row in rows],
    }
    for index, length in enumerate(query.lengths):
        columns[units.tick(length)] = [number(row.at[index], units.size) for row in rows]
    if query.memory is not None:
        limit = units.round_tick(units.size(query.memory))
        columns[f"Longest in {limit}"] = [_longest(row.longest) for row in rows]
    sizes = {row.kind: row.at for row in rows}
    full = sizes.get(INSTEAD, sizes[ALL])
    times = [
        f"{units.ratio(more / needed if needed else inf)} at {units.tick(length)}"
        for length, needed, more in zip(query.lengths, sizes[ALL], full, strict=True)
    ]
    needs = (
        f"Full attention in each layer would need {', '.join(times)}. " if INSTEAD in sizes else ""
    )
    holds = query.weights is not None and query.memory is not None
    beside = "The memory holds the weights too." if holds else ""
    beside = "Weights are extra." if query.weights is None else beside
    return Table(
        name="bytes",
        title=f"Bytes of the context: {title}",
        columns=tuple(columns),
        rows=tuple(zip(*columns.values(), strict=True)),
        note=(needs + beside).strip(),
    )


def _longest(longest: float | None) -> Cell:
    if longest is None:
        return EMPTY
    return Cell("any", inf) if longest == inf else number(longest, units.count)
