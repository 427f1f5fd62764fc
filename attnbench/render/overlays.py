"""Published curves over measured ones, one small panel for each mechanism, both axes logarithmic.

A solid line with its band was measured by the sweep, in the mechanism's colour; a dashed grey line
with small markers was printed by the paper.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby, zip_longest
from math import ceil
from types import MappingProxyType
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from attnbench import units
from attnbench.claims.bench import MeasuredSweep
from attnbench.claims.published import Overlay, Panel, overlay, sources
from attnbench.records import FigureSize
from attnbench.render.panels import DPI, fixed_ticks, log_ticks, saved, styled
from attnbench.render.styles import SHEETS, labels, readable, series_styles

COLUMNS = 3
PANEL = (1.75, 1.6)  # inches, with everything around it
HEAD, TITLE = 0.65, 0.3  # inches: above all panels, and above those of a quantity
LONGEST = 24  # characters of the name above a panel
BEYOND = 2.0  # the factor by which a panel extends past the published lengths
ROOM = 1.4  # the factor below the least and above the greatest value

# published values: grey, so that only predictions have open markers
PRINTED: Mapping[str, Any] = MappingProxyType({
    "color": "0.45", "linestyle": (0, (3, 1.5)), "marker": ".", "markersize": 3.5,
    "linewidth": 0.9,
})  # fmt: skip
MEASURED: Mapping[str, Any] = MappingProxyType({
    "color": "0.25", "marker": "o", "markersize": 3.5, "linewidth": 1.3,
})  # fmt: skip

Bounds = tuple[float, float]


def overlays(bench: MeasuredSweep, formats: Sequence[str] = ("png",)) -> dict[str, bytes]:
    """File name to figure, one for each paper that shares a mechanism with the sweep."""
    styles = series_styles(curve.series for curve in bench.curves)
    files: dict[str, bytes] = {}
    for figure, quantities in groupby(sources(), key=lambda source: (source.figure, source.title)):
        parts = [part for source in quantities if (part := overlay(bench, source)) is not None]
        if parts:
            picture = _picture(figure[1], parts, styles)
            files |= {f"claims_{figure[0]}.{end}": saved(picture, end) for end in formats}
    return files


def _picture(
    title: str, parts: Sequence[Overlay], styles: Mapping[str, Mapping[str, Any]]
) -> Figure:
    """Quantities one below the other, each with its title and its panels in rows."""
    rows = [ceil(len(part.panels) / COLUMNS) for part in parts]
    columns = min(COLUMNS, max(len(part.panels) for part in parts))
    width = max(SHEETS[FigureSize.COLUMN].width, columns * PANEL[0])
    heights = [TITLE + PANEL[1] * count for count in rows]
    names = labels((panel.series for part in parts for panel in part.panels), longest=LONGEST)
    bold: dict[str, Any] = {"x": 0.02, "ha": "left", "fontweight": "bold"}
    with styled():
        figure = Figure(figsize=(width, HEAD + sum(heights)), dpi=DPI)
        figure.suptitle(title, fontsize=9, **bold)
        keys = {
            f"published, {parts[0].hardware}": PRINTED,
            "measured here, 95 % confidence interval": MEASURED,
        }
        figure.legend(
            handles=[Line2D([], [], label=label, **style) for label, style in keys.items()],
            loc="outside lower left",
            ncols=2,
        )
        places = figure.subfigures(len(parts), 1, squeeze=False, height_ratios=heights)
        for part, (place,), count in zip(parts, places, rows, strict=True):
            place.suptitle(part.title, fontsize=8, **bold)
            bounds = _bounds(part)
            panels = place.subplots(count, columns, squeeze=False)
            for axes, panel in zip_longest(panels.flat, part.panels):
                if panel is None:
                    axes.remove()
                else:
                    _draw(axes, panel, styles[panel.series], names[panel.series], *bounds)
        return figure


def _bounds(part: Overlay) -> tuple[Bounds, Bounds]:
    """Lengths and values that all panels of a quantity share, so that slopes can be compared."""
    printed = np.concatenate([panel.published.lengths for panel in part.panels])
    lengths = (float(printed.min()) / BEYOND, float(printed.max()) * BEYOND)
    values: list[float] = []
    for panel in part.panels:
        near = (panel.measured.lengths >= lengths[0]) & (panel.measured.lengths <= lengths[1])
        values += [*np.exp(panel.measured.logs[near]), *np.exp(panel.published.logs)]
    return lengths, (min(values) / ROOM, max(values) * ROOM)


def _draw(
    axes: Axes,
    panel: Panel,
    style: Mapping[str, Any],
    label: str,
    lengths: Bounds,
    values: Bounds,
) -> None:
    colour = style["color"]
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ours, theirs = panel.measured, panel.published
    band = (ours.lengths, np.exp(ours.low), np.exp(ours.high))
    axes.fill_between(*band, color=colour, alpha=0.22, linewidth=0, zorder=1)
    axes.plot(ours.lengths, np.exp(ours.logs), **{**style, "linestyle": "-"})
    axes.plot(theirs.lengths, np.exp(theirs.logs), **PRINTED, zorder=2)
    axes.set_xlim(*lengths)
    axes.set_ylim(*values)
    powers = log_ticks(*lengths, 2)
    step = ceil(len(powers) / 4)
    fixed_ticks(axes.xaxis, {n: units.tick(round(n)) for n in powers[::step]})
    fixed_ticks(axes.yaxis, {y: f"{y:g}" for y in log_ticks(*values, 10)})
    axes.tick_params(labelsize=6, length=2)
    axes.set_title(label, fontsize=7, color=readable(colour), pad=10)
    printed = f"{panel.printed}; " if panel.printed else ""
    note = f"{printed}1 at {units.count(round(panel.at))} tokens"
    axes.annotate(
        note, (0, 1), (0, 3), xycoords="axes fraction", textcoords="offset points", fontsize=6
    )
