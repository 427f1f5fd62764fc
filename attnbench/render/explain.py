"""Why one mechanism takes longer than another: a paragraph and a table."""

from collections.abc import Iterator, Sequence
from math import nan

from attnbench import units
from attnbench.analysis.explain import COUNTS, LevelCosts
from attnbench.analysis.summary import Row
from attnbench.metrics import TABLE, TIME
from attnbench.render.cost_tables import INTERVALS, factor, measured_or_why, milliseconds, timed_by
from attnbench.render.grid import Cell, Column, Table, bounded, number, quantity, table, words


def title(levels: Sequence[LevelCosts]) -> str:
    """`B = 2, N = 3,072, D = 256, H = 16; inference, float32, cpu`."""
    a, b = levels[-1].a, levels[-1].b
    sizes = f"B = {a['batch']}, N = {units.count(a['seq_len'])}, D = {a['width']}, H = {a['heads']}"
    causal = "".join(f", {row['series']} causal" for row in (a, b) if row["causal"])
    return f"{sizes}; {a['mode']}, {a['dtype']}, {a['device']}{causal}"


def sentences(levels: Sequence[LevelCosts]) -> Iterator[str]:
    """How much longer the first takes, and by how much at each level."""
    timed = [level for level in levels if units.has_value(level.ratio)]
    last = timed[-1]
    ratio = factor(last.ratio, last.low, last.high)
    times = " against ".join(units.seconds(row[TIME]) for row in (last.a, last.b))
    a, b = last.a["series"], last.b["series"]
    apart = last.low > 1 or last.high < 1
    doubt = "" if apart else ", which is not shown to differ"
    yield f"{a} takes {ratio} the time of {b} at level {last.level}{doubt}: {times}."
    more = [
        f"{1e3 * (one.a[TIME] - one.b[TIME]):+.3g} ms at level {_level(one, last)}" for one in timed
    ]
    yield f"The difference is {', '.join(more)}."


def costs(levels: Sequence[LevelCosts]) -> Table:
    """A row for each metric at each level, with both values and the first over the second."""
    a, b = (levels[-1].a["series"], levels[-1].b["series"])
    known = [key for key in COUNTS if any(each.cases[key].notna().any() for each in levels)]
    cases = next(level.cases for level in reversed(levels) if units.has_value(level.ratio))
    return table(
        [(key, level) for key in (TIME, *known) for level in levels],
        [
            Column(
                "Cost", lambda row: words(TABLE[row[0]].label + (", ms" if row[0] == TIME else ""))
            ),
            Column("Level", lambda row: words(_level(row[1], levels[-1]))),
            Column("A", lambda row: _cell(row[0], row[1].a)),
            Column("B", lambda row: _cell(row[0], row[1].b)),
            Column("A over B", lambda row: _ratio(*row)),
        ],
        name="explain",
        title=f"A {a}, B {b}",
        note=f"Times are {timed_by(cases)}; the two took turns. Core: q, k, v to output; attention:"
        " with projections; model: the classifier of a sweep. FLOPs are matrix products of the"
        f" forward pass. {INTERVALS}",
        leading=2,
    )


def _level(level: LevelCosts, titled: LevelCosts) -> str:
    """The level, and the forms that ran at it where these are not the `titled` ones."""
    ran = [
        one["series"]
        for one, usual in ((level.a, titled.a), (level.b, titled.b))
        if one["series"] != usual["series"]
    ]
    return f"{level.level} ({', '.join(ran)})" if ran else level.level


def _cell(key: str, row: Row) -> Cell:
    def count(row: Row) -> Cell:
        return number(row[key], lambda value: quantity(value, TABLE[key].unit))

    return measured_or_why(row, key, milliseconds if key == TIME else count)


def _ratio(key: str, level: LevelCosts) -> Cell:
    if key == TIME:
        return bounded(level.ratio, level.low, level.high)
    return number(level.a[key] / (level.b[key] or nan), units.ratio)
