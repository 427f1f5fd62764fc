"""The roofline of a sweep: FLOP/s achieved against FLOPs per byte moved, below the machine's roof.

FLOPs are those of matrix products. One panel per mode, a thin line through each series from its
shortest length to its longest. A large marker is a case whose FLOPs are mostly the attention
core's.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from attnbench import units
from attnbench.analysis.roofline import Roof
from attnbench.analysis.summary import Frame
from attnbench.records import PASSES
from attnbench.render.panels import Ending, direct_labels, grid, heading, room, saved, styled
from attnbench.render.styles import series_styles

MOSTLY = 0.5  # of the FLOPs
ROOM = 1.6  # margin around the points, as a factor
SMALL, LARGE = 2.4, 5.0  # marker sizes in points


def roofline_figure(
    roofline: Frame, roof: Roof, suffix: str = "png", series: Iterable[str] = ()
) -> bytes | None:
    """The figure of `analysis.roofline`; None if bytes were counted for no timed case.

    `series` are all of the sweep in order, so that each has the same style as in other figures.
    """
    points = roofline[np.isfinite(roofline["intensity"]) & (roofline["rate"] > 0)]
    modes = [mode for mode in PASSES if mode in set(points["mode"])]
    if not modes:
        return None
    styles = series_styles([*series, *roofline["series"]])
    height = room([Ending(name, "", None, "") for name in styles])
    with styled():
        figure, panel_axes = grid(1, len(modes), height)
        for axes, mode in zip(panel_axes, modes, strict=True):
            _panel(axes, points[points["mode"] == mode], roof, styles)
            label = f"{_unit(roof)[0]} achieved; large markers: core dominates FLOPs"
            heading(axes, mode.capitalize(), label)
        return saved(figure, suffix)


def _panel(axes: Axes, points: Frame, roof: Roof, styles: Mapping[str, Mapping[str, Any]]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=10)
    endings = [
        _drawn(axes, str(name), rows.sort_values("seq_len"), styles[str(name)])
        for name, rows in points.groupby("series", sort=False)
    ]
    low, high = points["intensity"].min() / ROOM, points["intensity"].max() * ROOM
    low, high = min(low, roof.ridge / ROOM), max(high, roof.ridge * ROOM)
    axes.set_xlim(low, high)
    axes.set_ylim(points["rate"].min() / ROOM, max(roof.flops_per_s, points["rate"].max()) * ROOM)
    _roof(axes, roof, np.array([low, roof.ridge, high]))
    axes.set_xlabel("arithmetic intensity, FLOP/byte")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
    scale = _unit(roof)[1]
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y / scale:,g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    direct_labels(axes, endings)


def _unit(roof: Roof) -> tuple[str, float]:
    """The unit of the vertical axis and its size, by the height of the roof."""
    return ("TFLOP/s", 1e12) if roof.flops_per_s >= 5e12 else ("GFLOP/s", 1e9)


def _roof(axes: Axes, roof: Roof, intensity: np.ndarray) -> None:
    heights = np.minimum(roof.flops_per_s, intensity * roof.bytes_per_s)
    axes.plot(intensity, heights, color="0.3", linewidth=1.1, zorder=1)
    text = f"{units.rate(roof.flops_per_s)}, {units.size(roof.bytes_per_s)}/s"
    text += " (raised to the best case)" * roof.raised
    axes.annotate(
        text,
        (intensity[-1], heights[-1]),
        (0, 3),
        textcoords="offset points",
        ha="right",
        fontsize=6.5,
        color="0.3",
    )


def _drawn(axes: Axes, name: str, rows: Frame, style: Mapping[str, Any]) -> Ending:
    colour = style["color"]
    x, y = rows["intensity"].to_numpy(float), rows["rate"].to_numpy(float)
    axes.plot(x, y, color=colour, linestyle=style["linestyle"], linewidth=0.6, alpha=0.6, zorder=2)
    core = rows["core_share"].to_numpy(float) > MOSTLY
    points = {"marker": style["marker"], "color": colour, "linestyle": "none"}
    axes.plot(x[core], y[core], **points, markersize=LARGE, zorder=3)
    axes.plot(x[~core], y[~core], **points, markersize=SMALL, zorder=4)
    return Ending(name, "", (float(x[-1]), float(y[-1])), colour)
