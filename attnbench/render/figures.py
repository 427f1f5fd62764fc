"""Fig. 2 of the Fastformer paper from a sweep, and its like for memory.

One panel per mode, both axes logarithmic. Where a case was not measured the curve goes on dotted to
an open marker at the predicted cost, and its label says why: curves never just stop.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from attnbench.analysis.summary import Frame
from attnbench.render import units
from attnbench.render.curves import Curve, Quantity, curves
from attnbench.render.looks import look
from attnbench.render.panels import (
    Ending,
    direct_labels,
    grid,
    heading,
    length_axis,
    room,
    saved,
    styled,
)
from attnbench.render.slopes import slope_panel


def fig2(
    summary: Frame,
    tokens: int,
    suffix: str = "png",
    stacked: bool = False,
    slopes: Frame | None = None,
) -> bytes:
    """Time per batch of `tokens` tokens against length; `suffix` is png, svg or pdf.

    `stacked` sets the panels one above the other, for one column of a page. `slopes`, from
    `scaling.local_slopes` with the column `expected`, adds a panel below each.
    """
    time = Quantity(
        value="time_s",
        low="time_lo_s",
        high="time_hi_s",
        predicted="refined_s",
        per_token=True,
        axis=f"time per batch of {units.count(tokens)} tokens",
        text=units.seconds,
        base=10,
    )
    return _figure(summary, time, tokens, suffix, stacked, slopes)


def memory_figure(summary: Frame, tokens: int, suffix: str = "png", stacked: bool = False) -> bytes:
    """Allocated peak of one iteration against length, with the batch of each length."""
    peak = Quantity(
        value="allocated_peak_bytes",
        low=None,
        high=None,
        predicted="refined_bytes",
        per_token=False,
        axis=f"allocated peak, {units.count(tokens)} tokens or one sequence",
        text=units.size,
        base=4,
    )
    return _figure(summary, peak, tokens, suffix, stacked)


def _figure(
    summary: Frame,
    quantity: Quantity,
    tokens: int,
    suffix: str,
    stacked: bool,
    slopes: Frame | None = None,
) -> bytes:
    modes = [mode for mode in ("training", "inference") if mode in set(summary["mode"])]
    looks = {name: look(i) for i, name in enumerate(dict.fromkeys(summary["series"]))}
    panels = [curves(summary, mode, quantity, tokens) for mode in modes]
    height = max(room(_endings(panel, looks)) for panel in panels)
    kinds = 1 if slopes is None else 2
    rows, columns = (kinds * len(modes), 1) if stacked else (kinds, len(modes))
    with styled():
        figure, axes = grid(rows, columns, height)
        for place, mode, panel in zip(axes[: len(modes)], modes, panels, strict=True):
            _panel(place, panel, quantity, looks)
            heading(place, mode.capitalize(), quantity.axis)
        if slopes is not None:
            for place, mode in zip(axes[len(modes) :], modes, strict=True):
                slope_panel(place, slopes[slopes["mode"] == mode], mode, looks)
        return saved(figure, suffix)


def _panel(
    axes: Axes, panel: Sequence[Curve], quantity: Quantity, looks: Mapping[str, Mapping[str, Any]]
) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=quantity.base)
    for curve in panel:
        _draw(axes, curve, looks[curve.series])
    length_axis(axes, [int(n) for curve in panel for n in curve.lengths])
    _heights(axes, quantity)
    direct_labels(axes, _endings(panel, looks))


def _endings(panel: Sequence[Curve], looks: Mapping[str, Mapping[str, Any]]) -> list[Ending]:
    return [Ending(c.series, c.end, c.last, looks[c.series]["color"]) for c in panel]


def _draw(axes: Axes, curve: Curve, style: Mapping[str, Any]) -> None:
    measured = np.isfinite(curve.values)
    colour = style["color"]
    axes.plot(curve.lengths, curve.values, **style, zorder=3)
    axes.fill_between(
        curve.lengths, curve.low, curve.high, color=colour, alpha=0.22, linewidth=0, zorder=2
    )
    if measured.all() or curve.last is None:
        return
    known = np.isfinite(curve.drawn)
    axes.plot(
        curve.lengths[known], curve.drawn[known], color=colour, linestyle=":", linewidth=1, zorder=1
    )
    hollow = {**style, "markerfacecolor": "white", "linestyle": "none", "markersize": 4.6}
    guessed = np.isfinite(curve.guesses)
    if guessed.any():
        axes.plot(curve.lengths[guessed], curve.guesses[guessed], **hollow, zorder=4)
    else:
        axes.plot(*curve.last, **hollow, zorder=4)


def _heights(axes: Axes, quantity: Quantity) -> None:
    low, high = axes.get_ylim()
    decades = np.log(high / low) / np.log(quantity.base)
    subs = (1.0,) if decades >= 3 else (1.0, 2.0, 5.0) if quantity.base == 10 else (1.0, 2.0)
    axes.yaxis.set_major_locator(LogLocator(base=quantity.base, subs=subs, numticks=30))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: units.round_tick(quantity.text(y))))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(which="major", linewidth=0.3, color="0.85")
    axes.set_axisbelow(True)
