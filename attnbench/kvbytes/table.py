"""The table of how many bytes of its context a model keeps."""

from collections.abc import Callable, Iterator
from functools import partial
from math import inf

from attnbench import units
from attnbench.kvbytes.context import Context, ContextBytes, ContextQuery
from attnbench.render.grid import EMPTY, Cell, Table, number, words


def kept(context: Context, query: ContextQuery, title: str) -> Table:
    """One row per kind of layer, one for all, and full attention in place of each."""
    rows = [(row.kind, row.layers, row.needed) for row in context.rows]
    if context.full:
        rows.append(("full attention in each", context.whole.layers, context.full))
    columns = {
        "Kind of layer": [words(kind) for kind, *_ in rows],
        "Layers": [number(layers, units.count) for _, layers, _ in rows],
    }
    for heading, cell in _quantities(query):
        columns[heading] = [cell(needed) for *_, needed in rows]
    pairs = zip(context.times, query.lengths, strict=False)
    times = [f"{units.ratio(times)} at {units.tick(length)}" for times, length in pairs]
    needs = f"Full attention in each layer would need {', '.join(times)}. " if times else ""
    return Table(
        name="bytes",
        title=f"Bytes of the context: {title}",
        columns=tuple(columns),
        rows=tuple(zip(*columns.values(), strict=True)),
        note=f"{needs}Weights are extra.",
    )


def _quantities(query: ContextQuery) -> Iterator[tuple[str, Callable[[ContextBytes], Cell]]]:
    yield "Per token", lambda kept: Cell(f"{kept.per_token:,.10g} B", kept.per_token)
    for index, length in enumerate(query.lengths):
        yield units.tick(length), partial(_size, index)
    if query.memory is not None:
        limit = units.round_tick(units.size(query.memory))
        yield f"Longest in {limit}", _longest


def _size(index: int, kept: ContextBytes) -> Cell:
    return number(kept.at[index], units.size)


def _longest(kept: ContextBytes) -> Cell:
    if kept.longest is None:
        return EMPTY
    return Cell("any", inf) if kept.longest == inf else number(kept.longest, units.count)
