"""Why one mechanism takes longer than another: a paragraph and a table."""

from collections.abc import Iterator, Sequence
from functools import partial
from math import nan
from types import MappingProxyType
from typing import Any

from attnbench import units
from attnbench.analysis.explain import COUNTS, LevelCosts
from attnbench.analysis.summary import Row
from attnbench.metrics import TABLE, TIME
from attnbench.render.cost_tables import factor, intervals, measured_or_why, milliseconds, timed_by
from attnbench.render.grid import (
    EMPTY,
    Cell,
    Column,
    Table,
    none_if_nan,
    number,
    quantity,
    table,
    words,
)

PLACES = MappingProxyType({
    "core": "in the core", "attention": "in an attention layer", "model": "in the model",
})  # fmt: skip


def title(levels: Sequence[LevelCosts]) -> str:
    """`B = 2, N = 3,072, D = 256, H = 16; inference, float32, cpu`, and whether one is causal."""
    a, b = levels[-1].a, levels[-1].b
    sizes = f"B = {a['batch']}, N = {units.count(a['seq_len'])}, D = {a['width']}, H = {a['heads']}"
    causal = [row["series"] for row in (a, b) if row["causal"]]
    about = ["causal"] * (len(causal) == 2) + [f"only {name} is causal" for name in causal[:1]]
    return f"{sizes}; {', '.join([a['mode'], a['dtype'], a['device'], *about[:1]])}"


def sentences(levels: Sequence[LevelCosts]) -> Iterator[str]:
    """How much longer the first takes at each level, and what it counts in the first of these."""
    timed = [level for level in levels if units.has_value(level.ratio)]
    a, b = timed[-1].a, timed[-1].b
    ratio = factor(timed[-1].ratio, timed[-1].low, timed[-1].high)
    times = " against ".join(units.seconds(row[TIME]) for row in (a, b))
    yield f"{a['series']} takes {ratio} the time of {b['series']} {_place(timed[-1])}: {times}."
    more = (f"{_change(each.a[TIME] - each.b[TIME])} {_place(each)}" for each in timed)
    yield f"The difference is {', '.join(more)}."
    least = timed[0]
    counts = [
        f"{TABLE[key].label} {_count(key, least.a).text} against {_count(key, least.b).text}"
        for key in COUNTS
        if units.has_value(least.a[key]) and units.has_value(least.b[key])
    ]
    if counts:
        yield f"Counted {_place(least)}: {', '.join(counts)}."


def _place(level: LevelCosts) -> str:
    layers = int(level.a["layers"])
    return PLACES[level.level] + f" of {units.many(layers, 'layer')}" * (level.level == "model")


def _change(value: float) -> str:
    """`+12.3 ms`."""
    return units.signed("-" if value < 0 else "+") + units.seconds(abs(value))


def costs(levels: Sequence[LevelCosts]) -> Table:
    """A row for each metric at each level, with both values and the first over the second."""
    a, b = (levels[-1].a["series"], levels[-1].b["series"])
    known = [key for key in COUNTS if any(each.cases[key].notna().any() for each in levels)]
    cases = next(level.cases for level in reversed(levels) if units.has_value(level.ratio))
    return table(
        [(key, level) for key in (TIME, *known) for level in levels],
        [
            Column("Cost", lambda row: words(_heading(row[0])), "cost"),
            Column("Level", lambda row: words(row[1].level), "level"),
            Column("A", lambda row: _cell(row[0], row[1].a), "a"),
            Column("B", lambda row: _cell(row[0], row[1].b), "b"),
            Column("A over B", lambda row: _ratio(*row), "ratio"),
        ],
        name="explain",
        title=f"A {a}, B {b}",
        note=f"Each level was raced by itself, by {timed_by(cases)}. Core: q, k, v to output;"
        " attention: with projections; model: the classifier of a sweep. FLOPs are matrix products"
        f" of the forward pass. {intervals(cases, cases['mode'].iloc[0])}",
        leading=2,
    )


def _heading(key: str) -> str:
    return "time, ms" if key == TIME else TABLE[key].label


def _cell(key: str, row: Row) -> Cell:
    return measured_or_why(row, key, milliseconds if key == TIME else partial(_count, key))


def _count(key: str, row: Row) -> Cell:
    return number(row[key], lambda value: quantity(value, TABLE[key].unit))


def _ratio(key: str, level: LevelCosts) -> Cell:
    if key != TIME:
        return number(level.a[key] / (level.b[key] or nan), units.ratio)
    if not units.has_value(level.ratio):
        return EMPTY
    point, low, high = level.ratio, level.low, level.high
    return Cell(factor(point, low, high), point, none_if_nan(low), none_if_nan(high))


def data(levels: Sequence[LevelCosts]) -> dict[str, Any]:
    """Everything as plain data."""
    names = ("level", "ratio", "low", "high", "cases")
    return {
        "text": [*sentences(levels)],
        "levels": [{name: getattr(level, name) for name in names} for level in levels],
    }
