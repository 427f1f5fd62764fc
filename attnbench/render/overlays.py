"""Published curves over measured ones, one small panel for each mechanism, both axes logarithmic.

A solid line with its band was measured by the sweep, in the mechanism's colour; a dashed grey line
with small markers was printed by the paper.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from math import ceil
from types import MappingProxyType
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from attnbench import units
from attnbench.claims.bench import Bench
from attnbench.claims.published import Overlay, Panel, overlay, sources
from attnbench.records import FigureSize
from attnbench.render.panels import DPI, length_ticks, saved, styled
from attnbench.render.styles import SHEETS, labels, readable, series_styles

COLUMNS = 3
PANEL = (1.3, 1.05)  # inches of the axes themselves
GAPS = (0.37, 0.55)  # inches to the right of each panel and below it
LEFT, TOP, HEAD = 0.45, 0.62, 0.32  # inches: margins, and above each quantity
ABOVE = 0.22  # inches, of the gap below, for the name above each panel
LONGEST = 24  # characters of the name above a panel
BEYOND = 2.0  # the factor by which a panel extends past the published lengths

# published values: grey, so that open markers mean predictions alone
PRINTED: Mapping[str, Any] = MappingProxyType({
    "color": "0.45", "linestyle": (0, (3, 1.5)), "marker": ".", "markersize": 3.5,
    "linewidth": 0.9,
})  # fmt: skip


def overlays(bench: Bench, formats: Sequence[str] = ("png",)) -> dict[str, bytes]:
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
    step = (PANEL[0] + GAPS[0], PANEL[1] + GAPS[1])
    columns = min(COLUMNS, max(len(part.panels) for part in parts))
    width = max(SHEETS[FigureSize.COLUMN].width, LEFT + columns * step[0])
    size = (width, TOP + sum(HEAD + n * step[1] for n in rows))
    series = (panel.series for part in parts for panel in part.panels)
    names = labels(series, longest=LONGEST)
    with styled():
        figure = Figure(figsize=size, dpi=DPI)
        _heading(figure, title, parts[0].hardware)
        top_of_part = TOP
        for part, count in zip(parts, rows, strict=True):
            _note(figure, 0.1, top_of_part + 0.14, part.title, fontsize=8, fontweight="bold")
            ends = _bounds(part)
            for i, panel in enumerate(part.panels):
                left = LEFT + i % COLUMNS * step[0]
                top = top_of_part + HEAD + ABOVE + i // COLUMNS * step[1]
                box = (left / size[0], 1 - (top + PANEL[1]) / size[1])
                axes = figure.add_axes((*box, PANEL[0] / size[0], PANEL[1] / size[1]))
                _panel(axes, panel, styles[panel.series], names[panel.series], ends)
            top_of_part += HEAD + count * step[1]
        return figure


def _heading(figure: Figure, title: str, hardware: str) -> None:
    _note(figure, 0.1, 0.16, title, fontsize=9, fontweight="bold")
    grey = "0.25"
    ours = {"color": grey, "marker": "o", "markersize": 3.5, "linewidth": 1.3}
    pairs = (
        (f"published, {hardware}", PRINTED),
        ("measured here, 95 % confidence interval", ours),
    )
    handles = [Line2D([], [], label=label, **style) for label, style in pairs]
    width, height = figure.get_size_inches()
    figure.legend(
        handles=handles,
        loc="center left",
        bbox_to_anchor=(0.02 / width, 1 - 0.38 / height),
        ncols=2,
        fontsize=7,
        frameon=False,
        handlelength=3,
    )


def _note(figure: Figure, left: float, top: float, text: str, **style: Any) -> None:
    """Text at a position in inches from the top left corner of the figure."""
    width, height = figure.get_size_inches()
    figure.text(left / width, 1 - top / height, text, va="center", **style)


def _bounds(part: Overlay) -> tuple[tuple[float, float], tuple[float, float]]:
    """Lengths and values that all panels of a quantity share, so that slopes can be compared."""
    printed = np.concatenate([panel.published.lengths for panel in part.panels])
    lengths = (float(printed.min()) / BEYOND, float(printed.max()) * BEYOND)
    values: list[float] = []
    for panel in part.panels:
        near = (panel.measured.lengths >= lengths[0]) & (panel.measured.lengths <= lengths[1])
        values += [*np.exp(panel.measured.logs[near]), *np.exp(panel.published.logs)]
    return lengths, (min(values) / 1.4, max(values) * 1.4)


def _panel(
    axes: Axes,
    panel: Panel,
    style: Mapping[str, Any],
    label: str,
    ends: tuple[tuple[float, float], tuple[float, float]],
) -> None:
    colour = style["color"]
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ours, theirs = panel.measured, panel.published
    band = (ours.lengths, np.exp(ours.low), np.exp(ours.high))
    axes.fill_between(*band, color=colour, alpha=0.22, linewidth=0, zorder=1)
    axes.plot(ours.lengths, np.exp(ours.logs), **{**style, "linestyle": "-"})
    axes.plot(theirs.lengths, np.exp(theirs.logs), **PRINTED, zorder=2)
    _scales(axes, *ends)
    axes.grid(True, linewidth=0.3, color="0.88")
    axes.set_title(label, fontsize=7, color=readable(colour), loc="left", pad=10)
    printed = f"{panel.printed}; " if panel.printed else ""
    note = f"{printed}1 at {units.length(round(panel.at))} tokens"
    axes.annotate(
        note, (0, 1), (0, 3), xycoords="axes fraction", textcoords="offset points", fontsize=6
    )


def _scales(axes: Axes, lengths: tuple[float, float], values: tuple[float, float]) -> None:
    axes.set_xlim(*lengths)
    axes.set_ylim(*values)
    first, last = (float(np.log2(end)) for end in lengths)
    powers = range(ceil(first), int(last) + 1)
    step = 1 if len(powers) <= 4 else 2 if len(powers) <= 8 else 3
    length_ticks(axes, [2.0**power for power in powers[::step]])
    wide = values[1] / values[0] > 30
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 5.0), numticks=9))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    if wide:
        axes.yaxis.set_minor_locator(NullLocator())
    axes.tick_params(labelsize=6, length=2)
