"""The roofline of a sweep: FLOP/s achieved against FLOPs per byte moved, below the machine's roof.

FLOPs are those of matrix products. One panel per mode, a thin line through each series from its
shortest length to its longest, along which markers grow.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnbench import units
from attnbench.analysis.roofline import ROOM, Roof
from attnbench.analysis.summary import Frame, Row
from attnbench.records import PASSES, FigureSize
from attnbench.render.figures import log_ticks
from attnbench.render.legends import Ending
from attnbench.render.panels import Panels, fixed_ticks, styled, title
from attnbench.render.styles import SHEETS, Sheet, series_styles

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
    styles = series_styles([*series, *roofline["series"]], sheet.type)
    rows = [[mode] for mode in modes] if sheet.stacked else [modes]
    with styled(sheet):
        panels = Panels(sheet, len(rows), len(rows[0]))
        legends = []
        for i, row in enumerate(rows):
            shown = points[points["mode"].isin(row)]
            low, high = shown["rate"].min(), max(roof.flops_per_s, shown["rate"].max())
            panels.rows[i][0].set_yscale("log")
            panels.rows[i][0].set_ylim(low / ROOM, high * ROOM)
            unit, scale = units.rate_unit(roof.flops_per_s)
            ticks = log_ticks(low / ROOM, high * ROOM, 10)
            fixed_ticks(panels.rows[i][0].yaxis, {y: f"{y / scale:,g}" for y in ticks})
            panels.label(i, f"{unit} achieved")
            ends: dict[str, float] = {}
            for axes, mode in zip(panels.rows[i], row, strict=True):
                own = shown[shown["mode"] == mode]
                ends |= _panel(axes, own, roof, styles, sheet, points["seq_len"])
                title(axes, mode.capitalize(), sheet)
            legends.append([Ending(name, styles[name], (0.0, end)) for name, end in ends.items()])
        for axes in panels.rows[-1]:
            axes.set_xlabel("FLOP per byte moved")
        return panels.arranged(legends, [_note(points, roof)])


def _note(points: Frame, roof: Roof) -> str:
    first, last = (units.tick(int(n)) for n in (points["seq_len"].min(), points["seq_len"].max()))
    raised = ", raised to the best case" * roof.raised
    return (
        f"Markers grow with the length, from {first} to {last} tokens. Roof: "
        f"{units.rate(roof.flops_per_s)} and {units.size(roof.bytes_per_s)}/s{raised}."
    )


def _panel(
    axes: Axes,
    points: Frame,
    roof: Roof,
    styles: Mapping[str, Mapping[str, Any]],
    sheet: Sheet,
    lengths: Row,
) -> dict[str, float]:
    """Draw the series of one mode; the rate at which each ends."""
    axes.set_xscale("log", base=2)
    corners, heights = roof.outline(points)
    low, _, high = corners
    axes.set_xlim(low, high)
    fixed_ticks(axes.xaxis, {x: f"{x:g}" for x in log_ticks(low, high, 2)})
    axes.plot(corners, heights, color="0.3", linewidth=0.16 * sheet.type, zorder=1)
    span = max(float(np.log(lengths.max() / lengths.min())), 1e-9)
    ends = {}
    for name, rows in points.groupby("series", sort=False):
        rows, style = rows.sort_values("seq_len"), styles[str(name)]
        x, y = rows["intensity"].to_numpy(float), rows["rate"].to_numpy(float)
        line = {"linestyle": style["linestyle"], "linewidth": 0.08 * sheet.type}
        axes.plot(x, y, color=style["color"], **line, alpha=0.6, zorder=2)
        grown = np.log(rows["seq_len"].to_numpy(float) / lengths.min()) / span
        sizes = sheet.type * (SMALL + (LARGE - SMALL) * grown)
        axes.scatter(
            x,
            y,
            s=sizes**2,
            marker=style["marker"],
            c=style["markerfacecolor"],
            edgecolors=style["color"],
            linewidths=0.06 * sheet.type,
            zorder=style["zorder"],
        )
        ends[str(name)] = float(y[-1])
    return ends
