"""Why one mechanism takes longer than another: a paragraph, a table with bars, and a figure."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from attnbench import units
from attnbench.analysis.explain import SIDES, Explanation
from attnbench.analysis.summary import Row
from attnbench.records import FigureSize
from attnbench.render import markdown
from attnbench.render.cost_tables import factor
from attnbench.render.grid import Cell, Column, Table, number, table, words
from attnbench.render.panels import LegendEntry, PanelGrid, fixed_ticks, saved, styled
from attnbench.render.styles import SHEETS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BAR = 22  # letters of the longest bar
MORE, LESS = "█", "░"  # where the first takes longer, and where the second does


def title(found: Explanation) -> str:
    """`fnet:eager and local:eager, B2-N4096-D256-H16/model/inference/float32/cpu`."""
    sizes = str(found.pair[1].case).removeprefix(f"{found.pair[1].case.series}/")
    return f"{' and '.join(_names(found))}, {sizes}"


def _names(found: Explanation) -> list[str]:
    return [planned.case.series for planned in found.pair]


def sentences(found: Explanation) -> Iterator[str]:
    """The difference, where it comes from, and where it ends."""
    (a, b), whole, rows = _names(found), found.rows.iloc[-1], found.rows.iloc[:-1]
    times = (units.seconds(whole[side]) for side in ("a_s", "b_s"))
    yield f"{a} takes {factor(*found.ratio)} the time of {b}: {' against '.join(times)}."
    certain = (rows["low_s"] > 0) | (rows["high_s"] < 0)
    ordered = rows[certain].sort_values("more_s", key=lambda s: -s.abs())
    listed = [f"{part} {_change(s)}" for part, s in ordered[["part", "more_s"]].to_numpy()]
    if listed:
        yield f"Of the difference of {_change(whole['more_s'])}: {', '.join(listed)}."
    if even := [*rows.loc[~certain, "part"]]:
        yield f"No certain difference: {', '.join(even)}."
    if costs := [side.launch_s for pair in found.rounds for side in pair if side.launch_s]:
        counts = (units.count(sum(side.operators.values())) for side in found.rounds[0])
        each = units.seconds(sum(costs) / len(costs))
        yield f"They launch {' and '.join(counts)} operators per iteration, at {each} each."
    flops = [p.projection_flops + p.core_flops + p.shell_flops for p in found.pair]
    if all(flops):
        yield f"By FLOPs alone {a} would take {units.ratio(flops[0] / flops[1])} the time."
    for name, side in zip((a, b), found.rounds[0], strict=True):
        if side.lumped:
            yield f"Core and gates cannot be told apart in {name}."
    causal = [name for name, p in zip((a, b), found.pair, strict=True) if p.case.workload.causal]
    if len(causal) == 1:
        yield f"Only {causal[0]} is causal; --causal makes both causal."
    yield _crossing(found)


def _crossing(found: Explanation) -> str:
    """Which of them is faster from which length on, and how that is known."""
    lengths, (faster, (point, low, high)) = found.ratios.whole, found.crossing
    raced = f"raced at N = {units.between(lengths[0], lengths[-1])}"
    if faster is None:
        return f"Crossover: cannot tell, {raced}."
    name = _names(found)[SIDES.index(faster)]
    if math.isinf(point):
        return f"Crossover: {name} is not faster at any length in reach, {raced}."
    if not units.has_value(low):
        shown = units.count(int(float(f"{point:.1e}")))
        return f"Crossover: {name} is predicted to be faster from about {shown} on, {raced}."
    ends = units.interval(*(units.count(round(end)) for end in (point, low, high)))
    return f"Crossover: {name} is faster from {ends} on, {raced}."


def parts(found: Explanation) -> Table:
    """A row for each part, with a bar of its difference."""
    (a, b), top = _names(found), found.rows["more_s"].iloc[:-1].abs().max() or 1.0

    def bar(row: Row) -> Cell:
        length = round(min(BAR, BAR * abs(row["more_s"]) / top))
        return words((MORE if row["more_s"] > 0 else LESS) * length)

    return table(
        found.rows.to_dict("records"),
        [
            Column.words("Part", "part"),
            Column("A, ms", lambda row: number(1e3 * row["a_s"]), "a_ms"),
            Column("B, ms", lambda row: number(1e3 * row["b_s"]), "b_ms"),
            Column("A − B, ms", _difference, "more_ms"),
            Column("", bar, "bar"),
        ],
        name="explain",
        title=f"Where the time of an iteration goes: A {a}, B {b}",
        note=f"{MORE} A takes longer, {LESS} B does. 95 % confidence intervals over rounds. Parts"
        " are timed in a module with marks between them, less the cost of their operators on"
        " scalars, which is launches. Rest: the module without marks, less its parts.",
        kept=("", "Part"),
    )


def _difference(row: Row) -> Cell:
    point, low, high = (1e3 * row[name] for name in ("more_s", "low_s", "high_s"))
    text = units.signed("+" * (point > 0) + units.estimate(point, low, high))
    return Cell(text, float(point), float(low), float(high))


def _change(value: float) -> str:
    """`+12.3 ms`."""
    return units.signed("-" if value < 0 else "+") + units.seconds(abs(value))


def figure(found: Explanation, size: FigureSize) -> "Figure":
    """The difference as a bar for each part, in the colour of the one that takes longer there."""
    rows, (a, b) = found.rows.iloc[-2::-1], _names(found)
    with styled(SHEETS[size]):
        panels = PanelGrid(SHEETS[size], (a, b), rows=1, columns=1)
        axes, more = panels.rows[0][0], 1e3 * rows["more_s"].to_numpy(float)
        half = 1e3 * (rows["high_s"] - rows["low_s"]).to_numpy(float) / 2
        colours = [panels.styles[a if value > 0 else b]["color"] for value in more]
        ends = {"ecolor": "0.45", "elinewidth": SHEETS[size].type / 6}
        axes.barh(range(len(rows)), more, xerr=half, color=colours, height=0.7, error_kw=ends)
        axes.axvline(0, color="0.3", linewidth=SHEETS[size].type / 12)
        fixed_ticks(axes.yaxis, dict(enumerate(rows["part"])))
        axes.set_xlabel(f"time of {a} minus that of {b}, ms")
        entries = [LegendEntry(name, height) for name, height in ((a, 1.0), (b, 0.0))]
        note = "Bars have the colour of the one that takes longer; 95 % intervals over rounds."
        return panels.finished([entries], [f"{title(found)}.", note])


def data(found: Explanation) -> dict[str, Any]:
    """Everything as plain data, with what each round gave."""
    return {
        "cases": [str(planned.case) for planned in found.pair],
        "text": [*sentences(found)],
        "ratio": found.ratio,
        "parts": found.rows,
        "raced": found.ratios.whole,
        "crossover": found.crossing,
        "rounds": [[asdict(side) for side in pair] for pair in found.rounds],
    }


def files(found: Explanation, formats: Sequence[str], size: FigureSize) -> dict[str, bytes]:
    """The figure in each of `formats`, and a page with paragraph and table, by name."""
    drawn = figure(found, size)
    pictures = {f"explain.{end}": saved(drawn, end) for end in formats}
    shown = [name for name in pictures if not name.endswith("pdf")][:1]
    lead = " ".join(sentences(found))
    page = markdown.page(title(found), [], [], shown, [markdown.table(parts(found))], lead)
    return pictures | {"explain.md": page}
