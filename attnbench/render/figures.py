"""Fig. 2 of the Fastformer paper from a sweep, and the same figure for memory.

One panel per mode, both axes logarithmic. Where a case was not measured the curve continues dotted
to an open marker at the predicted cost, and its label says why. A case that cannot run has no
predicted cost and no marker.
"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from attnbench import units
from attnbench.analysis.summary import Frame
from attnbench.records import PASSES
from attnbench.render.cost_tables import batch
from attnbench.render.curves import Curve, Quantity, curves
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
from attnbench.render.styles import series_styles

LEAST = 2.0  # least ratio of the top of a vertical axis to its bottom
SPAN = (-0.5, 3.0)  # of local exponents; a noisy one may leave the panel
MARGIN = 0.25  # below the least and above the greatest local exponent

# for each base, powers between ticks and their multiples, from coarse to fine
STEPS = MappingProxyType({
    10: (
        (3, (1.0,)), (2, (1.0,)), (1, (1.0,)), (1, (1.0, 3.0)), (1, (1.0, 2.0, 5.0)),
        (1, (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)),
        (1, (1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)),
    ),
    2: (
        (10, (1.0,)), (4, (1.0,)), (2, (1.0,)), (1, (1.0,)), (1, (1.0, 1.5)),
        (1, (1.0, 1.25, 1.5, 1.75)),
    ),
})  # fmt: skip

TIME = Quantity(
    value="time_s",
    low="time_lo_s",
    high="time_hi_s",
    predicted="refined_s",
    per_token=True,
    axis="time per batch of {batch}",
    text=units.seconds,
    base=10,
)
MEMORY = Quantity(
    value="allocated_peak_bytes",
    low=None,
    high=None,
    predicted="refined_bytes",
    per_token=False,
    axis="peak allocated memory per batch",
    text=units.size,
    base=2,
)


def cost_figure(
    summary: Frame,
    quantity: Quantity,
    tokens: int | None,
    suffix: str = "png",
    slopes: Frame | None = None,
) -> bytes:
    """A cost against length, time per batch of `tokens` tokens; `suffix` is png, svg or pdf.

    `slopes`, from `scaling.local_slopes` with the column `expected`, adds a panel below each.
    """
    modes = [mode for mode in PASSES if mode in set(summary["mode"])]
    styles = series_styles(summary["series"])
    panels = [curves(summary, mode, quantity, tokens) for mode in modes]
    height = max(room(endings(drawn, styles)) for drawn in panels)
    with styled():
        figure, panel_axes = grid(1 if slopes is None else 2, len(modes), height)
        for axes, mode, drawn in zip(panel_axes[: len(modes)], modes, panels, strict=True):
            panel(axes, drawn, quantity, styles)
            guessed = any(np.isfinite(curve.guesses).any() for curve in drawn)
            label = quantity.axis.format(batch=batch(summary, tokens))
            heading(axes, mode.capitalize(), label + "; open: predicted" * guessed)
        if slopes is not None:
            for axes, mode in zip(panel_axes[len(modes) :], modes, strict=True):
                _slope_panel(axes, slopes[slopes["mode"] == mode], mode, styles)
        return saved(figure, suffix)


def panel(
    axes: Axes, drawn: Sequence[Curve], quantity: Quantity, styles: Mapping[str, Mapping[str, Any]]
) -> None:
    """Draw curves with their labels, over lengths."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=quantity.base)
    for curve in drawn:
        _draw(axes, curve, styles[curve.series])
    length_axis(axes, [int(n) for curve in drawn for n in curve.lengths])
    _heights(axes, quantity)
    direct_labels(axes, endings(drawn, styles))


def endings(drawn: Sequence[Curve], styles: Mapping[str, Mapping[str, Any]]) -> list[Ending]:
    """The labels of curves."""
    return [Ending(c.series, c.end, c.last, styles[c.series]["color"]) for c in drawn]


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
    axes.plot(curve.lengths[guessed], curve.guesses[guessed], **hollow, zorder=4)


def _heights(axes: Axes, quantity: Quantity) -> None:
    low, high = axes.get_ylim()
    # a flat curve looks flat, and there is room for distinct tick labels
    wider = max(1.0, (LEAST / (high / low)) ** 0.5)
    low, high = low / wider, high * wider
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(FixedLocator(log_ticks(low, high, quantity.base)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: units.round_tick(quantity.text(y))))


def _slope_panel(
    axes: Axes, slopes: Frame, mode: str, styles: Mapping[str, Mapping[str, Any]]
) -> None:
    """One curve per series, at geometric means of lengths; dashed lines are published exponents."""
    axes.set_xscale("log", base=2)
    endings = [
        _slope(axes, str(name), rows, styles[str(name)])
        for name, rows in slopes.groupby("series", sort=False)
    ]
    heading(axes, mode.capitalize(), "local exponent of N, time per sequence")
    known = slopes.dropna(subset="slope")
    if not len(known):
        axes.set_axis_off()
        axes.text(0.02, 0.9, "fewer than two lengths were timed", transform=axes.transAxes)
        return
    length_axis(axes, [int(n) for name in ("from_len", "to_len") for n in slopes[name]])
    expected = sorted(set(known["expected"].dropna()))
    reach = [*known["slope"].clip(*SPAN), *expected]
    axes.set_ylim(min(reach) - MARGIN, max(reach) + MARGIN)
    for power in expected:
        axes.axhline(power, color="0.45", linewidth=0.7, linestyle=(0, (4, 3)), zorder=1)
    low, high = axes.get_ylim()
    steps = {step / 2 for step in range(round(2 * low), round(2 * high) + 1)}
    axes.yaxis.set_major_locator(FixedLocator(sorted({*steps, *expected})))
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda y, _: f"paper: {y:g}" if y in expected else f"{y:g}")
    )
    axes.set_ylim(low, high)
    direct_labels(axes, endings)


def _slope(axes: Axes, name: str, rows: Frame, style: Mapping[str, Any]) -> Ending:
    middle = np.sqrt((rows["from_len"] * rows["to_len"]).to_numpy(float))
    slope, low, high = (rows[key].to_numpy(float) for key in ("slope", "low", "high"))
    axes.plot(middle, slope, **style, zorder=3)
    axes.fill_between(middle, low, high, color=style["color"], alpha=0.08, linewidth=0, zorder=2)
    known = np.flatnonzero(np.isfinite(slope))
    if not len(known):
        return Ending(name, "fewer than two lengths", None, style["color"])
    last = known[-1]
    return Ending(name, "", (middle[last], float(np.clip(slope[last], *SPAN))), style["color"])


def log_ticks(low: float, high: float, base: int) -> list[float]:
    """Round values within the bounds, with the coarsest steps of which at least four fit.

    With base 2 all are sums of few powers of two, so that sizes are round in binary units.
    """
    first, last = math.floor(math.log(low, base)), math.ceil(math.log(high, base))
    ticks: list[float] = []
    for step, factors in STEPS[base]:
        powers = range(first - first % step, last + 1, step)
        ticks = [factor * float(base) ** power for power in powers for factor in factors]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) >= 4:
            break
    return ticks
