"""The table of how many bytes of its context a model keeps."""

from collections.abc import Sequence
from math import inf

from attnbench import units
from attnbench.kvbytes.context import ContextQuery, Row
from attnbench.render.grid import EMPTY, Cell, Table, number, words


def kept(rows: Sequence[Row], query: ContextQuery, title: str) -> Table:
    """One row per kind of layer, one for all, and full attention in place of each if known."""
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
    *_, whole, full = rows
    times = [
        f"{units.ratio(more / needed if needed else inf)} at {units.tick(length)}"
        for length, more, needed in zip(query.lengths, full.at, whole.at, strict=True)
        if full.kind.startswith("full attention in")
    ]
    needs = f"Full attention in each layer would need {', '.join(times)}. " if times else ""
    return Table(
        name="bytes",
        title=f"Bytes of the context: {title}",
        columns=tuple(columns),
        rows=tuple(zip(*columns.values(), strict=True)),
        note=f"{needs}Weights are extra.",
    )


def _longest(longest: float | None) -> Cell:
    if longest is None:
        return EMPTY
    return Cell("any", inf) if longest == inf else number(longest, units.count)
