"""Fig. 2 of the Fastformer paper from a sweep, the same figure of other costs, and of decoding.

Both axes are logarithmic. Where a case was not measured the curve continues, light and dotted, to
an open marker at the predicted cost. A case that cannot run has no predicted cost and no marker; a
note says so.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.markers import CARETUP

from attnbench import units
from attnbench.analysis.summary import Frame
from attnbench.metrics import STATE, TABLE, TIME, Metric, Unit
from attnbench.modes import find
from attnbench.records import PASSES
from attnbench.render.cost_tables import batch, per_layer, timed_by
from attnbench.render.curves import points
from attnbench.render.grid import quantity
from attnbench.render.panels import (
    DPI,
    WIDTH,
    fixed_ticks,
    lay_out,
    length_axis,
    log_ticks,
    styled,
)
from attnbench.render.styles import STRONGEST, labels, mechanism_of, series_styles, tinted

LEAST = 2.0  # least ratio of the top of a vertical axis to its bottom
ROOM = 1.15  # margin below the least and above the greatest value, as a factor
# predictions beyond what was measured leave the panel after this factor, so that curves keep room
BEYOND = 4.0
LIGHTER = 0.35  # how far predictions are moved towards white
MOST = 10  # series in colour
# of series that stay in the background
GREY: Mapping[str, Any] = MappingProxyType({
    "color": "#B4B4B4", "markerfacecolor": "#B4B4B4", "markeredgecolor": "#B4B4B4", "marker": ".",
    "zorder": 1.5, "linestyle": "-",
})  # fmt: skip


class Panel(NamedTuple):
    """The points of one panel, and what its vertical axis counts."""

    title: str
    points: Frame
    axis: str
    unit: Unit


def cost_figure(cases: Frame, metric: Metric, tokens: int | None) -> Figure:
    """A cost against length, of a batch of `tokens` tokens or of the sweep's, or per token.

    The panels, one per mode, have one vertical axis.
    """
    axis = f"{metric.title or metric.label}{per_layer(cases)} per"
    axis += f" {'token' if metric.per_token else batch(cases, tokens)}"
    scale = 1 / cases["tokens"] if metric.per_token else cases["batch_scale"]
    drawn = dict(iter(points(cases, metric, scale).groupby("mode")))
    panels = [
        Panel(find(mode).title, drawn[mode], axis, metric.unit) for mode in PASSES if mode in drawn
    ]
    return _figure(panels, [*_clock(cases)] if metric.key == TIME else [], shared=True)


def decode_figure(cases: Frame, mode: str) -> Figure:
    """Time per output token, and beside it the size of the state, in a mode that steps."""
    own, of = cases[cases["mode"] == mode], per_layer(cases)
    panels = [
        Panel(f"{title}{of}", points(own, TABLE[key]), axis, TABLE[key].unit)
        for title, key, axis in (
            ("Time per decoding step", TIME, "time per output token"),
            ("Size of the state", STATE, "bytes"),
        )
    ]
    said = [*_clock(cases)]
    if len(filled := own[own["filled"] & own[TIME].notna()]):
        least = units.tick(int(filled["seq_len"].min()))
        said.append(f"States filled without prompts from {least}.")
    return _figure(panels, said, across="context")


def _clock(cases: Frame) -> Iterator[str]:
    """`CPU time on one core.`: what times are, where it is not the time of a device."""
    if (how := timed_by(cases)) != "time":
        yield f"{units.capitalised(how)}."


def _figure(
    panels: Sequence[Panel],
    said: Sequence[str],
    *,
    shared: bool = False,
    across: str = "sequence length",
) -> Figure:
    """The panels side by side, with what is `said` of them below; `shared` is the vertical axis.

    The legend has the order in which curves end in the last panel that has them.
    """
    every = pd.concat([panel.points for panel in panels])
    grey, order = faded(every), [*ends(every).index]
    order += [name for name in every["series"].unique() if name not in order]
    names, styles = labels(order), series_styles(order)
    styles |= {name: {**styles[name], **GREY} for name in grey}
    short = " (K = 1,024)" if every["seq_len"].max() >= 1024 else ""
    with styled():
        figure, columns = Figure(figsize=(WIDTH, WIDTH), dpi=DPI), len(panels)
        grid = figure.subplots(1, columns, sharey=shared, squeeze=False)[0]
        for axes, panel in zip(grid, panels, strict=True):
            low, high = limits(every if shared else panel.points)
            axes.set_title(panel.title)
            axes.set_yscale("log")
            for name, curve in panel.points.groupby("series", sort=False):
                _draw(axes, curve, styles[str(name)], high)
            length_axis(axes, map(int, panel.points["seq_len"]), columns)
            axes.set_xlabel(f"{across}{short}")
            axes.set_ylim(low, high)
            ticks = log_ticks(low, high, 2 if panel.unit is Unit.BYTES else 10)
            texts = {tick: units.round_tick(quantity(tick, panel.unit)) for tick in ticks}
            fixed_ticks(axes.yaxis, texts)
            if not (shared and axes is not grid[0]):
                axes.set_ylabel(panel.axis)
        tops = [axes.get_ylim()[1] for axes in grid]
        notes = [*said, *_notes(panels, tops, names)]
        keys = {names[name]: styles[name] for name in order if name not in grey}
        if grey:
            keys[f"{len(grey)} others"] = {**GREY}
            below = ", ".join(names[name] for name in order if name in grey)
            notes.append(f"Grey, from top to bottom: {below}.")
        lay_out(figure, keys, notes)
    return figure


def ends(drawn: Frame) -> pd.Series:
    """The height at which the curve of each series ends in its last panel, from top to bottom."""
    shown = drawn[drawn["height"] > 0].groupby("series", sort=False)["height"]
    return shown.last().sort_values(ascending=False, kind="stable")


def faded(drawn: Frame) -> frozenset[str]:
    """The series left grey: beyond `MOST`, all but the strongest and those with the lowest ends."""
    heights = ends(drawn)

    def rank(name: str) -> tuple[bool, float]:
        return mechanism_of(name) not in STRONGEST, heights.get(name, math.inf)

    return frozenset(sorted(drawn["series"].unique(), key=rank)[MOST:])


def _draw(axes: Axes, curve: Frame, style: Mapping[str, Any], high: float) -> None:
    """A curve with its intervals; predictions are light and open, and arrows if above `high`."""
    light, thin = tinted(style["color"], LIGHTER), 0.7 * style["linewidth"]
    axes.plot(curve["seq_len"], curve["value"], **style)
    for guessed, own in curve.dropna(subset=["low", "high"]).groupby(curve["guess"].notna()):
        colour, width = (light, thin) if guessed else (style["color"], style["linewidth"])
        bars = own["seq_len"], own["low"], own["high"]
        axes.vlines(*bars, color=colour, linewidth=width, alpha=0.6, zorder=1)
    known = curve["guess"].isna()
    if known.all():
        return
    joined = ~(known & known.shift(fill_value=True) & known.shift(-1, fill_value=True))
    marked: dict[str, Any] = {"color": light, "zorder": 2, "linestyle": "none"}
    heights = curve["height"].where(joined)
    axes.plot(curve["seq_len"], heights, **marked | {"linestyle": ":", "linewidth": thin})
    axes.plot(
        curve["seq_len"], curve["guess"], **marked, marker=style["marker"], markerfacecolor="white",
        markersize=0.85 * style["markersize"], markeredgewidth=0.7 * style["markeredgewidth"],
    )  # fmt: skip
    above = curve["seq_len"][curve["guess"] > high]
    size = 1.2 * style["markersize"]
    axes.plot(above, [high] * len(above), **marked, marker=CARETUP, markersize=size)


def _notes(
    panels: Sequence[Panel], tops: Sequence[float], names: Mapping[str, str]
) -> Iterator[str]:
    """What is missing in panels, and what open markers, arrows and bars are, if any."""
    every = pd.concat([panel.points for panel in panels])
    lost = every[every["height"].isna()]
    for why, own in lost.groupby(lost["mode"] + ", " + lost["reason"], sort=False):
        which = ", ".join(names[name] for name in own["series"].unique())
        yield f"{units.capitalised(str(why))}: {which}."
    guessed = every[every["guess"].notna()]
    if len(guessed):
        yield f"Open markers: predicted ({', '.join(guessed['reason'].unique())})."
    if any((p.points["guess"] > top).any() for p, top in zip(panels, tops, strict=True)):
        yield "Arrows: predictions above the axis."
    if every["low"].notna().any():
        yield "Bars: 95\N{NO-BREAK SPACE}%\N{NO-BREAK SPACE}CI."


def limits(drawn: Frame) -> tuple[float, float]:
    """The ends of a vertical axis for what was measured and predictions close to it."""
    shown = drawn[["value", "guess", "low", "high"]]
    shown = shown.where(shown > 0)  # what a logarithmic axis can show
    known = shown["value"] if shown["value"].notna().any() else shown["guess"]
    if known.isna().all():
        return 1 / LEAST, LEAST
    near = shown.clip(known.min() / BEYOND, known.max() * BEYOND)
    low, high = float(near.min().min()), float(near.max().max())
    # a flat curve looks flat, and there is room for distinct tick labels
    wider = ROOM * max(1.0, (LEAST / (high / low)) ** 0.5)
    return low / wider, high * wider
