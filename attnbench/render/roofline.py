"""The roofline of a sweep, as a figure and as tables.

The figure shows the FLOP/s achieved against FLOPs per byte moved, below the machine's roof. FLOPs
are those of matrix products. One panel per mode, a thin line through each series from its shortest
length to its longest, along which markers grow.
"""

from collections.abc import Iterable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnbench import units
from attnbench.analysis.roofline import ROOM, Bound, Roof
from attnbench.analysis.summary import Frame, Row
from attnbench.modes import find
from attnbench.records import PASSES, FigureSize
from attnbench.render.cost_tables import by_length
from attnbench.render.grid import Cell, Column, Table, bounded, table
from attnbench.render.panels import LegendEntry, PanelGrid, fixed_ticks, log_ticks, styled
from attnbench.render.styles import SHEETS, uncoloured

SMALL, LARGE = 0.2, 0.65  # marker sizes at the shortest and longest length, in units of the type


def roofline_figure(
    roofline: Frame, roof: Roof, size: FigureSize = FigureSize.TEXT, series: Iterable[str] = ()
) -> Figure | None:
    """The figure of `analysis.roofline`; None if bytes were counted for no timed case.

    `series` are all of the sweep, so that each has the same style as in other figures.
    """
    points = roofline.dropna(subset=["intensity"])
    modes = [mode for mode in PASSES if mode in set(points["mode"])]
    if not modes:
        return None
    sheet = SHEETS[size]
    rows = sheet.rows(modes)
    unit, scale = units.rate_unit(roof.flops_per_s)
    with styled(sheet):
        fastest = points.groupby("series")["rate"].max()
        slowness = {str(name): -rate for name, rate in fastest.items()}
        every = [*series, *roofline["series"]]
        panels = PanelGrid(sheet, every, len(rows), len(rows[0]), faded=uncoloured(slowness))
        legends = []
        for row, drawn in zip(panels.rows, rows, strict=True):
            shown = points[points["mode"].isin(drawn)]
            low = shown["rate"].min() / ROOM
            high = ROOM * max(roof.flops_per_s, shown["rate"].max())
            row[0].set_yscale("log")
            row[0].set_ylim(low, high)
            row[0].set_ylabel(f"{unit} achieved")
            fixed_ticks(row[0].yaxis, {y: f"{y / scale:,g}" for y in log_ticks(low, high, 10)})
            ends: dict[str, float] = {}
            for axes, mode in zip(row, drawn, strict=True):
                of_mode = shown[shown["mode"] == mode]
                ends |= _draw(panels, axes, of_mode, roof, points["seq_len"])
                axes.set_title(find(mode).title)
            legends.append([LegendEntry(name, end) for name, end in ends.items()])
        for axes in panels.rows[-1]:
            axes.set_xlabel("FLOP per byte moved")
        return panels.finished(legends, [_note(points, roof)])


def _note(points: Frame, roof: Roof) -> str:
    first, last = (units.tick(end(points["seq_len"])) for end in (min, max))
    raised = ", raised to the best case" * roof.raised
    return (
        f"Markers grow with the length, from {first} to {last} tokens. Roof: "
        f"{units.rate(roof.flops_per_s)} and {units.size(roof.bytes_per_s)}/s{raised}."
    )


def _draw(
    panels: PanelGrid, axes: Axes, points: Frame, roof: Roof, lengths: Row
) -> dict[str, float]:
    """Draw the series of one mode; the rate at which each ends."""
    unit = panels.sheet.type
    axes.set_xscale("log", base=2)
    corners, heights = roof.outline(points)
    low, _, high = corners
    axes.set_xlim(low, high)
    fixed_ticks(axes.xaxis, {x: f"{x:g}" for x in log_ticks(low, high, 2)})
    axes.plot(corners, heights, color="0.3", linewidth=0.16 * unit, zorder=1)
    span = max(float(np.log(lengths.max() / lengths.min())), 1e-9)
    ends = {}
    for name, rows in points.groupby("series", sort=False):
        rows, style = rows.sort_values("seq_len"), panels.styles[str(name)]
        x, y = rows["intensity"].to_numpy(float), rows["rate"].to_numpy(float)
        line = {"linestyle": style["linestyle"], "linewidth": 0.08 * unit}
        axes.plot(x, y, color=style["color"], **line, alpha=0.6, zorder=2)
        grown = np.log(rows["seq_len"].to_numpy(float) / lengths.min()) / span
        sizes = unit * (SMALL + (LARGE - SMALL) * grown)
        axes.scatter(
            x,
            y,
            s=sizes**2,
            marker=style["marker"],
            c=style["markerfacecolor"],
            edgecolors=style["color"],
            linewidths=0.06 * unit,
            zorder=style["zorder"],
        )
        ends[str(name)] = float(y[-1])
    return ends


def over_bound(roofline: Frame, mode: str, roof: Roof) -> Table:
    """Time over the roofline bound, a row per series and a column per length."""

    def cell(row: Row) -> Cell:
        mark = " b" if row["bound"] == Bound.BYTES else ""
        return bounded(row["over"], row["low"], row["high"], mark)

    raised = ", and raised to what the best case did" * roof.raised
    facts = find(mode)
    return by_length(
        roofline[roofline["mode"] == mode],
        mode,
        "over",
        cell,
        name=f"over_floor_{mode}",
        title=f"{facts.title} time relative to the roofline bound of this machine, ×",
        across="over_floor",
        note=f"The bound is the longer of two times: FLOPs at {units.rate(roof.flops_per_s)}, the"
        " rate of a large matrix product, and the least bytes (parameters, inputs and outputs once)"
        f" at {units.size(roof.bytes_per_s)}/s, that of a large copy. Both peaks were measured on"
        f" this machine when the sweep began{raised}. “b” marks a bound set by bytes."
        f"{f' {facts.work}' * bool(facts.work)} FLOPs are those of matrix products alone, so a"
        " mechanism with few products is far above its bound in any implementation.",
    )


def rates(fits: Frame) -> Table:
    """FLOP/s of the core and of the rest, for series along which the two can be separated."""
    return table(
        fits.to_dict("records"),
        [
            Column.words("Mechanism", "series", key="mechanism"),
            Column.words("Mode", "mode"),
            Column.number("Lengths", "lengths", units.count),
            Column("Core, GFLOP/s", lambda row: _rate(row, "core")),
            Column("Projections and shell, GFLOP/s", lambda row: _rate(row, "rest")),
        ],
        name="rates",
        title="Throughput of the attention core and of the rest",
        leading=2,
        note="Fitted to the times at all lengths, assuming one constant rate for each part; shown"
        " only where the core's share of the FLOPs varies enough along the lengths. Training counts"
        " three times the FLOPs of the forward pass.",
    )


def _rate(row: Row, part: str) -> Cell:
    point, low, high = (float(row[part + end]) / 1e9 for end in ("", "_low", "_high"))
    return Cell(units.interval(*map(units.plain, (point, low, high))), point, low, high)
