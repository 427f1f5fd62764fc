"""Fig. 2 of the Fastformer paper from a sweep, and the same figure of other costs.

One panel per mode, both axes logarithmic. Where a case was not measured the curve continues, light
and dotted, to an open marker at the predicted cost. A case that cannot run has no predicted cost
and no marker; the legend says so. The points of curves are computed before anything is drawn.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.markers import CARETUP

from attnbench import units
from attnbench.analysis.summary import Frame
from attnbench.metrics import TIME, Metric, Unit
from attnbench.modes import find
from attnbench.records import PASSES, FigureSize
from attnbench.render.answers import between
from attnbench.render.cases import outcome_phrase
from attnbench.render.cost_tables import batch, per_layer, timed_by
from attnbench.render.grid import quantity
from attnbench.render.panels import LegendEntry, PanelGrid, fixed_ticks, log_ticks, styled
from attnbench.render.styles import SHEETS, tinted, uncoloured

LEAST = 2.0  # least ratio of the top of a vertical axis to its bottom
ROOM = 1.15  # margin below the least and above the greatest value, as a factor
# predictions beyond what was measured leave the panel after this factor, so that curves keep room
BEYOND = 4.0
LIGHTER = 0.35  # how far predictions are moved towards white
LONGEST = 22  # characters of the reason in a legend


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One series in one mode, shortest length first.

    `values` are NaN where nothing was measured; `guesses` hold the predictions there, if any, and
    `least` and `most` their bands.
    `causes` are the reasons, and `missing` names lengths without a prediction with theirs.
    """

    series: str
    lengths: np.ndarray
    values: np.ndarray
    low: np.ndarray
    high: np.ndarray
    guesses: np.ndarray
    least: np.ndarray
    most: np.ndarray
    causes: tuple[str, ...] = ()
    missing: str = ""

    @property
    def drawn(self) -> np.ndarray:
        """Measured values, and guesses where there are none."""
        return np.where(np.isfinite(self.values), self.values, self.guesses)

    @property
    def entry(self) -> LegendEntry:
        """The entry of its legend."""
        drawn = self.drawn[np.isfinite(self.drawn)]
        return LegendEntry(self.series, float(drawn[-1]) if len(drawn) else None, self.missing)


def cost_figure(
    summary: Frame,
    metric: Metric,
    tokens: int | None,
    size: FigureSize = FigureSize.TEXT,
) -> Figure:
    """A cost against length, of a batch of `tokens` tokens or of the sweep's, or per token."""
    sheet, timed = SHEETS[size], metric.key == TIME
    named = clock(summary) if timed else metric.title or metric.label
    axis = f"{named}{per_layer(summary)} per"
    axis += f" {'token' if metric.per_token else batch(summary, tokens)}"
    rows = sheet.rows([mode for mode in PASSES if mode in set(summary["mode"])])
    drawn = {mode: curves(summary, mode, metric) for row in rows for mode in row}
    with styled(sheet):
        grey = faded(drawn.values())
        panels = PanelGrid(sheet, summary["series"], len(rows), len(rows[0]), faded=grey)
        legends = [
            draw_row(panels, i, {find(mode).title: drawn[mode] for mode in row}, axis, metric.unit)
            for i, row in enumerate(rows)
        ]
        above = clock_note(summary) if timed else ()
        said = notes([[curve for mode in row for curve in drawn[mode]] for row in rows])
        return panels.finished(legends, [*above, *said])


def faded(panels: Iterable[Sequence[Curve]]) -> frozenset[str]:
    """The series that these panels leave grey: of many, those that end highest."""
    ends: dict[str, list[float]] = {}
    for curve in (curve for panel in panels for curve in panel):
        ends.setdefault(curve.series, []).append(math.log(curve.entry.height or math.inf))
    return uncoloured({name: sum(logs) / len(logs) for name, logs in ends.items()})


def clock(summary: Frame) -> str:
    """`CPU time`: the clock, as short as the label of an axis needs it."""
    return timed_by(summary).partition(" on ")[0]


def clock_note(summary: Frame) -> Iterator[str]:
    """`CPU time on one core.`: the clock in full, if it says more than the axis does."""
    if (how := timed_by(summary)) != clock(summary):
        yield f"{units.capitalised(how)}."


def curves(summary: Frame, mode: str, metric: Metric) -> list[Curve]:
    """Every series of a mode, in the order of the plan."""
    cases = summary[summary["mode"] == mode]
    return [
        _curve(str(series), rows.sort_values("seq_len"), metric)
        for series, rows in cases.groupby("series", sort=False)
    ]


def _curve(series: str, rows: Frame, metric: Metric) -> Curve:
    scale = (1 / rows["tokens"] if metric.per_token else rows["batch_scale"]).to_numpy(float)

    def scaled(name: str, known: bool = True) -> np.ndarray:
        return rows[name].to_numpy(float) * scale if known else np.full(len(rows), np.nan)

    column, lower, upper, *_ = metric.estimate
    values = scaled(column)
    missing = ~np.isfinite(values)
    guesses, least, most = (
        np.where(missing, scaled(name, metric.predicted and name in rows), np.nan)
        for name in metric.prediction
    )
    ends = zip(rows["outcome"], rows["cause"], missing, strict=True)
    reasons = [outcome_phrase(outcome, cause) if gone else "" for outcome, cause, gone in ends]
    unseen = ["" if np.isfinite(guess) else r for guess, r in zip(guesses, reasons, strict=True)]
    return Curve(
        series=series,
        lengths=rows["seq_len"].to_numpy(),
        values=values,
        low=scaled(lower, metric.interval),
        high=scaled(upper, metric.interval),
        guesses=guesses,
        least=least,
        most=most,
        causes=tuple(dict.fromkeys(filter(None, reasons))),
        missing=_missing([int(n) for n in rows["seq_len"]], unseen),
    )


def _missing(lengths: Sequence[int], reasons: Sequence[str]) -> str:
    """`cannot run at 128, from 32K`: the lengths that a figure cannot show and why, in short."""
    causes = list(dict.fromkeys(filter(None, reasons)))
    if all(reasons) or not causes:
        return causes[0] if len(causes) == 1 else "not measured" if causes else ""
    parts = [f"{cause} {_where(lengths, [r == cause for r in reasons])}" for cause in causes]
    text, gone = "; ".join(parts), sum(map(bool, reasons))
    return text if len(text) <= LONGEST else f"{gone} of {len(lengths)} not measured"


def _where(lengths: Sequence[int], gone: Sequence[bool]) -> str:
    """`at 128, 512–2K, from 32K` for those lengths."""
    runs = between([*compress(lengths, gone)], lengths, units.tick, "–")
    if not gone[-1]:
        return f"at {', '.join(runs)}"
    *inner, last = runs
    tail = f"from {last.partition('–')[0]}"
    return f"at {', '.join(inner)}, {tail}" if inner else tail


def draw_row(
    panels: PanelGrid,
    i: int,
    drawn: Mapping[str, Sequence[Curve]],
    axis: str,
    unit: Unit,
    label: str = "sequence length",
) -> list[LegendEntry]:
    """Draw a row of panels, by their titles, with one vertical scale; the entries of its legend.

    An entry is that of the last panel which has the series.
    """
    for axes, (title, panel) in zip(panels.rows[i], drawn.items(), strict=True):
        axes.set_title(title)
        axes.set_yscale("log")
        for curve in panel:
            _draw(axes, curve, panels.styles[curve.series])
        panels.length_axis(axes, (int(n) for curve in panel for n in curve.lengths), label)
    axes, every = panels.rows[i][0], [curve for panel in drawn.values() for curve in panel]
    axes.set_ylabel(axis)
    low, high = _heights(every)
    axes.set_ylim(low, high)
    ticks = log_ticks(low, high, 2 if unit is Unit.BYTES else 10)
    fixed_ticks(axes.yaxis, {tick: units.round_tick(quantity(tick, unit)) for tick in ticks})
    for axes, panel in zip(panels.rows[i], drawn.values(), strict=True):
        for curve in panel:
            at, colour = curve.lengths[curve.guesses > high], panels.styles[curve.series]["color"]
            axes.plot(
                at, np.full(len(at), high), color=tinted(colour, LIGHTER), linestyle="none",
                marker=CARETUP, markersize=0.6 * panels.sheet.type,
            )  # fmt: skip
    return [*{curve.series: curve.entry for curve in every}.values()]


def notes(rows: Iterable[Sequence[Curve]]) -> Iterator[str]:
    """What open markers, arrows and bands of rows of panels are, if there are any."""
    rows = [*rows]
    drawn = [curve for row in rows for curve in row]
    guessed = [curve for curve in drawn if np.isfinite(curve.guesses).any()]
    if causes := dict.fromkeys(cause for curve in guessed for cause in curve.causes):
        yield f"Open markers: predicted ({', '.join(causes)})."
    if any((curve.guesses > _heights(row)[1]).any() for row in rows for curve in row):
        yield "Arrows: predictions above the axis."
    if any(np.isfinite(curve.low).any() for curve in drawn):
        yield "Bands and bars: 95\N{NO-BREAK SPACE}%\N{NO-BREAK SPACE}CI."


def _draw(axes: Axes, curve: Curve, style: Mapping[str, Any]) -> None:
    colour, weight = style["color"], style["linewidth"]
    axes.plot(curve.lengths, curve.values, **style)
    _intervals(axes, curve.lengths, curve.low, curve.high, colour, weight)
    if not np.isfinite(curve.guesses).any():
        return
    guessed = np.isfinite(curve.guesses)
    beside = np.r_[guessed[1:], False] | np.r_[False, guessed[:-1]]
    joined = np.where(guessed | beside, curve.drawn, np.nan)
    light = tinted(colour, LIGHTER)
    _intervals(axes, curve.lengths, curve.least, curve.most, light, 0.7 * weight)
    axes.plot(curve.lengths, joined, color=light, linestyle=":", linewidth=0.7 * weight, zorder=2)
    axes.plot(
        curve.lengths[guessed], curve.guesses[guessed], color=light, linestyle="none", zorder=2,
        marker=style["marker"], markerfacecolor="white", markersize=0.85 * style["markersize"],
        markeredgewidth=0.7 * style["markeredgewidth"],
    )  # fmt: skip


def _intervals(
    axes: Axes,
    lengths: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    colour: str,
    weight: float,
) -> None:
    """A band, and a bar where neither neighbour has an interval."""
    known = np.r_[False, np.isfinite(low) & np.isfinite(high), False]
    alone = known[1:-1] & ~known[:-2] & ~known[2:]
    if known.any():
        band: dict[str, Any] = {"color": colour, "alpha": 0.15, "linewidth": 0, "zorder": 1}
        axes.fill_between(lengths, low, high, **band)
    if alone.any():
        bars = (lengths[alone], low[alone], high[alone])
        axes.vlines(*bars, color=colour, linewidth=weight, zorder=2)


def _heights(drawn: Sequence[Curve]) -> tuple[float, float]:
    """The ends of a vertical axis for what was measured and predictions close to it."""
    measured = _drawn([curve.values for curve in drawn])
    guesses = _drawn([curve.guesses for curve in drawn])
    if measured.size:
        bounds = (measured.min() / BEYOND, measured.max() * BEYOND)
        ends = _drawn([end for curve in drawn for end in (curve.low, curve.high)])
        near = np.r_[guesses, ends].clip(*bounds)
    else:
        near = guesses
    values = np.r_[measured, near]
    low, high = (values.min(), values.max()) if values.size else (1.0, 1.0)
    # a flat curve looks flat, and there is room for distinct tick labels
    wider = ROOM * max(1.0, (LEAST / (high / low)) ** 0.5)
    return float(low / wider), float(high * wider)


def _drawn(parts: Sequence[np.ndarray]) -> np.ndarray:
    """All numbers of some arrays that a logarithmic axis can show."""
    values = np.concatenate([np.empty(0), *parts])
    return np.asarray(values[np.isfinite(values) & (values > 0)])
