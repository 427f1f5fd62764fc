"""The table of what a model keeps of its context."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from attnbench import units
from attnbench.render.grid import EMPTY, Cell, Table, number, words

if TYPE_CHECKING:
    from attnbench.workloads.context import Asked, Context, Kept

BREAK_EVEN = "Break-even"
CHECKED = "5.23"  # the release of transformers whose caches were compared


def kept(context: "Context", asked: "Asked", title: str) -> Table:
    """One row per kind of layer, one for all, and full attention in place of each.

    A quantity has a second column where transformers keeps other bytes than are needed.
    """
    rows = [(row.kind, row.layers, row.needed, row.transformers) for row in context.rows]
    if full := context.full:
        rows.append(("full attention in each", context.whole.layers, full, full))
    columns = {
        "Kind of layer": [words(kind) for kind, *_ in rows],
        "Layers": [number(layers, units.length) for _, layers, *_ in rows],
    }
    for heading, cell in _quantities(asked):
        columns[heading] = [cell(needed) for *_, needed, _ in rows]
        there = [cell(kept) for *_, kept in rows]
        if there != columns[heading] and heading != BREAK_EVEN:
            columns[f"{heading}, kept"] = there
    return Table(
        name="bytes",
        title=f"Bytes of the context: {title}",
        columns=tuple(columns),
        rows=tuple(zip(*columns.values(), strict=True)),
        note=f"{_times(context, asked)}It needs more from the break-even on. kept: as transformers"
        f" {CHECKED} keeps it, where that is not what the equations need. Weights come on top.",
        kept=tuple(columns),
    )


def _quantities(asked: "Asked") -> Iterator[tuple[str, Callable[["Kept"], Cell]]]:
    yield "Per token", lambda kept: Cell(f"{kept.per_token:,.10g} B", kept.per_token)
    yield BREAK_EVEN, lambda kept: _tokens(kept.break_even)
    for i, length in enumerate(asked.lengths):
        yield units.tick(length), lambda kept, i=i: number(kept.at[i], units.size)
    if asked.memory is not None:
        yield (
            f"Longest in {units.round_tick(units.size(asked.memory))}",
            lambda kept: _tokens(kept.longest),
        )


def _tokens(value: int | None) -> Cell:
    return EMPTY if value is None else number(value, units.length)


def _times(context: "Context", asked: "Asked") -> str:
    """How many times as much full attention would keep."""
    if context.full is None:
        return ""
    pairs = zip(asked.lengths, context.full.at, context.whole.needed.at, strict=True)
    ratios = [f"{units.ratio(full / kept)} at {units.tick(n)}" for n, full, kept in pairs if kept]
    return f"Full attention in each layer would need {', '.join(ratios)}. " if ratios else ""
