"""The table of how many bytes of its context a model keeps."""

from collections.abc import Callable, Iterator
from functools import partial
from math import inf

from attnbench import units
from attnbench.kvbytes.context import Context, ContextBytes, ContextQuery
from attnbench.render.grid import EMPTY, Cell, Table, number, words

BREAK_EVEN = "Break-even"
CHECKED = "5.24"  # the release of transformers whose caches were compared
KEPT = ", kept"


def kept(context: Context, query: ContextQuery, title: str) -> Table:
    """One row per kind of layer, one for all, and full attention in place of each.

    A quantity has a second column where transformers keeps other bytes than are needed.
    """
    rows = [(row.kind, row.layers, row.needed, row.transformers) for row in context.rows]
    if full := context.full:
        rows.append(("full attention in each", context.whole.layers, full, full))
    columns = {
        "Kind of layer": [words(kind) for kind, *_ in rows],
        "Layers": [number(layers, units.count) for _, layers, *_ in rows],
    }
    for heading, cell in _quantities(query):
        columns[heading] = [cell(needed) for *_, needed, _ in rows]
        there = [cell(kept) for *_, kept in rows]
        if there != columns[heading] and heading != BREAK_EVEN:
            columns[heading + KEPT] = there
    return Table(
        name="bytes",
        title=f"Bytes of the context: {title}",
        columns=tuple(columns),
        rows=tuple(zip(*columns.values(), strict=True)),
        note=_note(context, query, any(heading.endswith(KEPT) for heading in columns)),
    )


def _quantities(query: ContextQuery) -> Iterator[tuple[str, Callable[[ContextBytes], Cell]]]:
    yield "Per token", lambda kept: Cell(f"{kept.per_token:,.10g} B", kept.per_token)
    yield BREAK_EVEN, lambda kept: _tokens(kept.break_even)
    for index, length in enumerate(query.lengths):
        yield units.tick(length), partial(_size, index)
    if query.memory is not None:
        limit = units.round_tick(units.size(query.memory))
        yield f"Longest in {limit}", lambda kept: _tokens(kept.longest)


def _size(index: int, kept: ContextBytes) -> Cell:
    return number(kept.at[index], units.size)


def _tokens(value: float | None) -> Cell:
    if value is None:
        return EMPTY
    return Cell("any", value) if value == inf else number(value, units.count)


def _note(context: Context, query: ContextQuery, differs: bool) -> str:
    pairs = zip(context.times, query.lengths, strict=False)
    times = [f"{units.ratio(times)} at {units.tick(length)}" for times, length in pairs]
    needs = f"Full attention in each layer would need {', '.join(times)}. " if times else ""
    kept = f" kept: as transformers {CHECKED} keeps it, which is not what the equations need."
    return f"{needs}Weights are extra.{kept if differs else ''}"
