"""Fig. 2 of the Fastformer paper from a sweep, and the same figure of other costs.

One panel per mode, both axes logarithmic. Where a case was not measured the curve continues, light
and dotted, to an open marker at the predicted cost. A case that cannot run has no predicted cost
and no marker; the legend says so. The points of curves are computed before anything is drawn.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, compress
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.markers import CARETUP

from attnbench import units
from attnbench.analysis.summary import Frame
from attnbench.metrics import TIME, Metric, Unit
from attnbench.modes import find
from attnbench.records import PASSES, FigureSize
from attnbench.render.cases import outcome_phrase
from attnbench.render.charts import points
from attnbench.render.cost_tables import batch, per_layer, timed_by
from attnbench.render.grid import quantity
from attnbench.render.panels import PanelGrid, fixed_ticks, log_ticks, styled
from attnbench.render.styles import SHEETS, labels, tinted, uncoloured

LEAST = 2.0  # least ratio of the top of a vertical axis to its bottom
ROOM = 1.15  # margin below the least and above the greatest value, as a factor
# predictions beyond what was measured leave the panel after this factor, so that curves keep room
BEYOND = 4.0
LIGHTER = 0.35  # how far predictions are moved towards white
ARROW = 1.2  # size of arrows relative to markers


class Curve(NamedTuple):
    """One series in one mode, shortest length first.

    `values` are NaN where nothing was measured, for one of the `reasons`; `guesses` hold the
    predictions there, if any. `low` and `high` are the ends of intervals of either.
    """

    series: str
    mode: str
    lengths: np.ndarray
    values: np.ndarray
    low: np.ndarray
    high: np.ndarray
    guesses: np.ndarray
    reasons: Sequence[str]

    @property
    def drawn(self) -> np.ndarray:
        """Measured values, and guesses where there are none."""
        return np.where(np.isfinite(self.values), self.values, self.guesses)

    @property
    def height(self) -> float:
        """That of its end; -inf if nothing is drawn."""
        drawn = self.drawn[np.isfinite(self.drawn)]
        return float(drawn[-1]) if len(drawn) else -math.inf

    @property
    def missing(self) -> str:
        """`inference, cannot run at 2 of 10 lengths`: what a figure cannot show, and why."""
        gone = [*compress(self.reasons, np.isnan(self.drawn))]
        if not gone:
            return ""
        text = f"{self.mode}, {gone[0] if len({*gone}) == 1 else 'not measured'}"
        every = len(self.lengths)
        return text if len(gone) == every else f"{text} at {len(gone)} of {every} lengths"


def cost_figure(
    summary: Frame,
    metric: Metric,
    tokens: int | None,
    size: FigureSize = FigureSize.TEXT,
) -> Figure:
    """A cost against length, of a batch of `tokens` tokens or of the sweep's, or per token."""
    sheet = SHEETS[size]
    axis = f"{metric.title or metric.label}{per_layer(summary)} per"
    axis += f" {'token' if metric.per_token else batch(summary, tokens)}"
    modes = [mode for mode in PASSES if mode in set(summary["mode"])]
    rows = [[mode] for mode in modes] if sheet.stacked else [modes]
    drawn = {mode: curves(summary, mode, metric) for row in rows for mode in row}
    with styled(sheet):
        grey = faded(drawn.values())
        panels = PanelGrid(sheet, summary["series"], len(rows), len(rows[0]), faded=grey)
        legends = [
            draw_row(panels, i, {find(mode).title: drawn[mode] for mode in row}, axis, metric.unit)
            for i, row in enumerate(rows)
        ]
        clock = clock_note(summary) if metric.key == TIME else []
        said = notes([[curve for mode in row for curve in drawn[mode]] for row in rows])
        return panels.finished(legends, [*clock, *said])


def faded(panels: Iterable[Sequence[Curve]]) -> frozenset[str]:
    """The series that these panels leave grey: of many, those that end highest."""
    ends = {curve.series: curve.height for panel in panels for curve in panel}
    return uncoloured({name: end if end > 0 else math.inf for name, end in ends.items()})


def clock_note(summary: Frame) -> list[str]:
    """`CPU time on one core.`: what times are, where it is not the time of a device."""
    how = timed_by(summary)
    return [f"{units.capitalised(how)}."] if how != "time" else []


def curves(summary: Frame, mode: str, metric: Metric) -> list[Curve]:
    """Every series of a mode, in the order of the plan."""
    cases = summary[summary["mode"] == mode]
    return [
        _curve(rows.sort_values("seq_len"), metric)
        for _, rows in cases.groupby("series", sort=False)
    ]


def _curve(rows: Frame, metric: Metric) -> Curve:
    scale = 1 / rows["tokens"] if metric.per_token else rows["batch_scale"]
    values, low, high, guesses = points(rows, metric, scale).to_numpy(float).T
    reasons = [*map(outcome_phrase, rows["outcome"], rows["cause"])]
    first, lengths = rows.iloc[0], rows["seq_len"].to_numpy()
    return Curve(first["series"], first["mode"], lengths, values, low, high, guesses, reasons)


def draw_row(
    panels: PanelGrid,
    i: int,
    drawn: Mapping[str, Sequence[Curve]],
    axis: str,
    unit: Unit,
    label: str = "sequence length",
) -> dict[str, float]:
    """Draw a row of panels, by their titles, with one vertical scale.

    Returned are the heights at which curves end in the last panel that has them, by series.
    """
    every = [curve for panel in drawn.values() for curve in panel]
    low, high = _heights(every)
    ticks = log_ticks(low, high, 2 if unit is Unit.BYTES else 10)
    for axes, (title, panel) in zip(panels.rows[i], drawn.items(), strict=True):
        axes.set_title(title)
        axes.set_yscale("log")
        for curve in panel:
            _draw(axes, curve, panels.styles[curve.series], high)
        panels.length_axis(axes, (int(n) for curve in panel for n in curve.lengths), label)
    axes = panels.rows[i][0]
    axes.set_ylabel(axis)
    axes.set_ylim(low, high)
    fixed_ticks(axes.yaxis, {tick: units.round_tick(quantity(tick, unit)) for tick in ticks})
    return {curve.series: curve.height for curve in every}


def notes(rows: Iterable[Sequence[Curve]]) -> Iterator[str]:
    """What is missing in rows of panels, and what open markers, arrows and bars are, if any."""
    rows = [*rows]
    drawn = [curve for row in rows for curve in row]
    names = labels(curve.series for curve in drawn)
    for missing in dict.fromkeys(curve.missing for curve in drawn if curve.missing):
        which = [names[curve.series] for curve in drawn if curve.missing == missing]
        yield f"{units.capitalised(missing)}: {', '.join(which)}.".replace("\n", ", ")
    guessed = (compress(curve.reasons, np.isfinite(curve.guesses)) for curve in drawn)
    if causes := dict.fromkeys(chain.from_iterable(guessed)):
        yield f"Open markers: predicted ({', '.join(causes)})."
    if any((curve.guesses > _heights(row)[1]).any() for row in rows for curve in row):
        yield "Arrows: predictions above the axis."
    if any(np.isfinite(curve.low).any() for curve in drawn):
        yield "Bars: 95\N{NO-BREAK SPACE}%\N{NO-BREAK SPACE}CI."


def _draw(axes: Axes, curve: Curve, style: Mapping[str, Any], high: float) -> None:
    """A curve with its intervals; predictions are light and open, and arrows if above `high`."""
    colour, light, thin = style["color"], tinted(style["color"], LIGHTER), 0.7 * style["linewidth"]
    axes.plot(curve.lengths, curve.values, **style)
    bounded, guessed = np.isfinite(curve.low) & np.isfinite(curve.high), np.isfinite(curve.guesses)
    for own, look, weight in (~guessed, colour, style["linewidth"]), (guessed, light, thin):
        if (at := bounded & own).any():
            ends = curve.lengths[at], curve.low[at], curve.high[at]
            axes.vlines(*ends, color=look, linewidth=weight, alpha=0.6, zorder=1)
    if not guessed.any():
        return
    beside = np.r_[guessed[1:], False] | np.r_[False, guessed[:-1]]
    joined = np.where(guessed | beside, curve.drawn, np.nan)
    axes.plot(curve.lengths, joined, color=light, linestyle=":", linewidth=thin, zorder=2)
    axes.plot(
        curve.lengths[guessed], curve.guesses[guessed], color=light, linestyle="none", zorder=2,
        marker=style["marker"], markerfacecolor="white", markersize=0.85 * style["markersize"],
        markeredgewidth=0.7 * style["markeredgewidth"],
    )  # fmt: skip
    above = curve.lengths[curve.guesses > high]
    arrows = {"marker": CARETUP, "markersize": ARROW * style["markersize"], "linestyle": "none"}
    axes.plot(above, np.full(len(above), high), color=light, **arrows)


def _heights(drawn: Sequence[Curve]) -> tuple[float, float]:
    """The ends of a vertical axis for what was measured and predictions close to it."""
    known = _positive(drawn, "values")
    if not known.size:
        known = _positive(drawn, "guesses")
    if not known.size:
        return 1 / LEAST, LEAST
    near = _positive(drawn, "guesses", "low", "high")
    shown = np.r_[known, near.clip(known.min() / BEYOND, known.max() * BEYOND)]
    low, high = float(shown.min()), float(shown.max())
    # a flat curve looks flat, and there is room for distinct tick labels
    wider = ROOM * max(1.0, (LEAST / (high / low)) ** 0.5)
    return low / wider, high * wider


def _positive(drawn: Sequence[Curve], *names: str) -> np.ndarray:
    """All numbers of these fields that a logarithmic axis can show."""
    parts = [getattr(curve, name) for curve in drawn for name in names]
    values = np.concatenate([np.empty(0), *parts])
    return np.asarray(values[np.isfinite(values) & (values > 0)])
