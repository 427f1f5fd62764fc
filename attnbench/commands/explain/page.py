"""Why one mechanism takes longer than another: a paragraph and a table."""

from collections.abc import Iterator, Sequence
from math import nan

from attnbench.analysis import Row
from attnbench.commands.explain.analysis import COUNTS, LevelCosts
from attnbench.records import metrics, units
from attnbench.report import cost_tables, grid, names, styles


def title(levels: Sequence[LevelCosts]) -> str:
    """`B = 2, N = 3,072, D = 256, H = 16; inference, float32, cpu`."""
    a = levels[-1].a
    b = levels[-1].b
    sizes = f"B = {a['batch']}, N = {units.count(a['seq_len'])}, D = {a['width']}, H = {a['heads']}"
    causal = "".join(f", {row['series']} causal" for row in (a, b) if row["causal"])
    return f"{sizes}; {a['mode']}, {a['dtype']}, {a['device']}{causal}"


def sentences(levels: Sequence[LevelCosts]) -> Iterator[str]:
    """Whether the first takes longer at the highest level that timed both, and at each level.

    Every sentence names the forms that ran.
    """
    timed = [level for level in levels if level.conclusion.scope.lengths]
    last = timed[-1]
    times = " against ".join(units.seconds(row[metrics.TIME]) for row in (last.a, last.b))
    yield f"At level {_level(last, last)}, {_compared(last)}: {times}."
    more = [_apart(one, last) for one in timed]
    yield f"The difference is {'; '.join(more)}."
    for one in levels:
        if one not in timed:
            decided = one.conclusion.decided_by
            option = f"; {decided} may decide it" if decided else ""
            reason = one.conclusion.reason.rstrip(".")
            yield f"Not known at level {one.level} ({reason}{option})."


def _compared(level: LevelCosts) -> str:
    """`a:eager takes 2.10× [1.90, 2.30] the time of b:eager`, with what makes it doubtful."""
    conclusion = level.conclusion
    value = conclusion.value
    ratio = cost_tables.factor(value.point, value.low, value.high)
    a, b = (_marked(row) for row in (level.a, level.b))
    sentence = f"{a} takes {ratio} the time of {b}"
    if conclusion.is_known:
        return sentence
    option = f"; {conclusion.decided_by} may decide it" if conclusion.decided_by else ""
    return f"{sentence}, which is not known to be a difference ({conclusion.reason}{option})"


def _apart(level: LevelCosts, titled: LevelCosts) -> str:
    """`+1.20 ms at level core`, and whether that is not shown."""
    doubt = "" if level.conclusion.is_known or level is titled else ", not shown to differ"
    difference_s = level.a[metrics.TIME] - level.b[metrics.TIME]
    sign = "−" if difference_s < 0 else "+"
    return f"{sign}{units.seconds(abs(difference_s))} at level {_level(level, titled)}{doubt}"


def _marked(row: Row) -> str:
    """The series of a row, with a dagger if it is suspect."""
    return f"{row['series']} {styles.SUSPECT}" if row["suspect"] else str(row["series"])


def costs(levels: Sequence[LevelCosts]) -> grid.Table:
    """A row for each metric at each level, with both values and the first over the second."""
    a, b = (_marked(row) for row in (levels[-1].a, levels[-1].b))
    counts = [key for key in COUNTS if any(each.cases[key].notna().any() for each in levels)]
    cases = next(level.cases for level in reversed(levels) if level.conclusion.scope.lengths)
    suspects = f" {names.MARK}" if any(cases["suspect"]) else ""
    timed = [level for level in levels if level.conclusion.scope.lengths]
    turns = "; the two took turns" if all(level.paired for level in timed) else ""
    return grid.table(
        [(key, level) for key in (metrics.TIME, *counts) for level in levels],
        [
            grid.Column(
                "Cost",
                lambda row: grid.words(
                    metrics.TABLE[row[0]].label + (", ms" if row[0] == metrics.TIME else "")
                ),
            ),
            grid.Column("Level", lambda row: grid.words(_level(row[1], levels[-1]))),
            grid.Column("A", lambda row: _cell(row[0], row[1].a)),
            grid.Column("B", lambda row: _cell(row[0], row[1].b)),
            grid.Column("A over B", lambda row: _ratio(*row)),
        ],
        name="explain",
        title=f"A {a}, B {b}",
        note=f"Times are {cost_tables.timed_by(cases)}{turns}. Core: q, k, v to output; attention:"
        " with projections; model: the classifier of a sweep. FLOPs are matrix products of the"
        f" forward pass. {cost_tables.INTERVALS}{suspects}",
        leading=2,
    )


def _level(level: LevelCosts, titled: LevelCosts) -> str:
    """The level, and the forms that ran at it where these are not the `titled` ones."""
    ran = [
        one["series"]
        for one, usual in ((level.a, titled.a), (level.b, titled.b))
        if one["series"] != usual["series"]
    ]
    text = f"{level.level}{cost_tables.per_layer(level.cases)}"
    return f"{text} ({', '.join(ran)})" if ran else text


def _cell(key: str, row: Row) -> grid.Cell:
    def count(row: Row) -> grid.Cell:
        return grid.number(row[key], lambda value: grid.quantity(value, metrics.TABLE[key].unit))

    return cost_tables.measured_or_why(
        row, key, cost_tables.milliseconds if key == metrics.TIME else count
    )


def _ratio(key: str, level: LevelCosts) -> grid.Cell:
    if key == metrics.TIME:
        return grid.bounded(level.ratio, level.low, level.high)
    return grid.number(level.a[key] / (level.b[key] or nan), units.ratio)
