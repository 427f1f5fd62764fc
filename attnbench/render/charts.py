"""The data of a page's interactive charts: what Vega-Lite draws, and in which styles.

All are drawn from the specification `web/chart.vl.json`: `web/charts.js` takes layers from it and
adds the points of the current selection. Every point carries its text, so that a page shows the
same digits as the tables.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from attnbench import units
from attnbench.analysis.report import Analysis
from attnbench.analysis.summary import Frame
from attnbench.metrics import MEMORY, ROWS, TABLE, TIME, Metric, Unit
from attnbench.records import AT, PASSES
from attnbench.render.cases import outcome_phrase
from attnbench.render.cost_tables import batch, per_layer, timed_by
from attnbench.render.grid import clean, quantity
from attnbench.render.html import WEB
from attnbench.render.names import compared_with
from attnbench.render.styles import labels, on_dark, series_styles

DIGITS = 6  # significant, of what is drawn; texts and files have all that is known

COSTS = (TIME, "token_s", "tokens_per_s", MEMORY)
LONGEST = 1000  # characters of a name, which a page breaks
INTERVALS = "Bars are 95 % confidence intervals, thin ones bands of predictions."

# the units in which an axis counts, from small to large
STEPS = MappingProxyType({
    Unit.SECONDS: tuple(step for step in units.TIMES if step[1] <= 1),  # ticks: powers of ten
    Unit.BYTES: units.SIZES,
    Unit.FLOPS: tuple((f"{prefix}FLOP", size) for prefix, size in units.PREFIXES),
})  # fmt: skip
PLAIN = (Unit.RATIO, Unit.COUNT, Unit.EXPONENT, Unit.RATE)  # need no unit


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A quantity against length: an array with a value per case, NaN where it is unknown.

    `key` names it in links, `text` writes a value with its unit, and `unit` decides in which unit
    the axis counts.
    """

    key: str
    label: str
    axis: str
    values: np.ndarray
    ends: Sequence[np.ndarray] = ()  # of intervals: low, high
    predicted: np.ndarray | None = None
    text: Callable[[float], str] = units.ratio
    unit: Unit = Unit.RATIO
    note: str = ""


def charts(analysis: Analysis) -> dict[str, Any]:
    """Everything that the charts of one sweep show."""
    cases, sweep = analysis.cases, analysis.sweep
    drawn = [*costs(cases, sweep.request.batch_tokens)]
    if analysis.speedups is not None:
        # after the time of a batch, which a step of decoding does not have
        behind = 1 if set(PASSES) & {*analysis.modes} else 2
        drawn.insert(behind, _speedup(cases, analysis.speedups, analysis.baselines))
    return page_data(cases, drawn)


def page_data(cases: Frame, drawn: Iterable[Drawn]) -> dict[str, Any]:
    """The data of quantities of these cases; columns needed: series, mode, seq_len."""
    names, modes = _orders(cases)
    styles, shown = series_styles(names), labels(names, longest=LONGEST)
    return {
        "spec": json.loads(WEB.joinpath("chart.vl.json").read_text()),
        "modes": modes,
        "lengths": {str(n): units.tick(n) for n in sorted(set(cases["seq_len"]))},
        "series": [_look(name, label, styles[name]) for name, label in shown.items()],
        "quantities": [q for q in (_quantity(one, cases) for one in drawn) if q["points"]],
    }


def _orders(cases: Frame) -> tuple[list[str], list[str]]:
    """The series and the modes, in the order of their numbers in points."""
    return [*dict.fromkeys(map(str, cases["series"]))], [*dict.fromkeys(map(str, cases["mode"]))]


def _places(rows: Frame, cases: Frame) -> list[dict[str, int]]:
    """What every point of these rows has: the numbers of series and mode, and the length."""
    names, modes = _orders(cases)
    columns = (rows[name].tolist() for name in ("series", "mode", "seq_len"))
    return [
        {"series": names.index(str(name)), "mode": modes.index(str(mode)), "n": int(n)}
        for name, mode, n in zip(*columns, strict=True)
    ]


def costs(cases: Frame, tokens: int | None) -> Iterator[Drawn]:
    """Time in its three scales, peak memory, then every other metric that people compare.

    A batch is one of `tokens` tokens, or of the sweep's; in decode a step has no such time.
    """
    time, token, rate, memory = (TABLE[key] for key in COSTS)
    per_batch = cases["batch_scale"].where(cases["mode"].isin(PASSES)).to_numpy(float)
    sizes, guess = (cases[key].to_numpy(float) for key in ("outputs", time.prediction[0]))
    label, clock, of = (
        f"time per batch of {batch(cases, tokens)}",
        timed_by(cases),
        per_layer(cases),
    )
    named, by_token = (text.replace("time", clock, 1) + of for text in (label, token.label))
    yield replace(_drawn(time, cases, per_batch), label=label, axis=named, note=INTERVALS)
    yield replace(_drawn(token, cases), axis=by_token, predicted=guess / sizes)
    yield replace(_drawn(rate, cases), axis=f"{rate.unit}{of}", predicted=sizes / guess)
    yield _drawn(memory, cases)
    for metric in ROWS:
        if metric.offered and metric.key in cases and metric.key not in COSTS:
            yield _drawn(metric, cases)


def _speedup(cases: Frame, speedups: Frame, baselines: Sequence[str]) -> Drawn:
    paired = cases.merge(speedups, on=["series", "mode", "seq_len"], how="left")
    values, *ends = (paired[name].to_numpy(float) for name in ("ratio", "low", "high"))
    base = compared_with(cases["series"], baselines)
    label, note = f"speed-up over {base}", f"Above 1 is faster than {base}. {INTERVALS}"
    return Drawn(
        key="speedup", label=label, axis=f"{label}, ×{per_layer(cases)}", values=values, ends=ends,
        note=note,
    )  # fmt: skip


def _drawn(metric: Metric, cases: Frame, scale: np.ndarray | float = 1.0) -> Drawn:
    columns = metric.estimate[:3] if metric.interval else metric.estimate[:1]
    values, *ends = (cases[column].to_numpy(float) * scale for column in columns)
    guesses = cases[metric.prediction[0]].to_numpy(float) * scale if metric.predicted else None
    if metric.predicted and {*metric.prediction} <= {*cases}:
        bands = (cases[name].to_numpy(float) * scale for name in metric.prediction[1:])
        known = cases[metric.key].notna()
        ends = [np.where(known, *pair) for pair in zip(ends, bands, strict=True)]
    text = f"{units.capitalised(metric.description)}."
    return Drawn(
        key=metric.key, label=metric.label, unit=metric.unit,
        axis=metric.label + per_layer(cases) * metric.of_a_layer,
        text=lambda value: quantity(value, metric.unit),
        values=values, ends=ends, predicted=guesses,
        note=f"{text} {INTERVALS}" if metric.interval else text,
    )  # fmt: skip


def _quantity(drawn: Drawn, cases: Frame) -> dict[str, Any]:
    nothing = np.full(len(cases), np.nan)
    low, high = drawn.ends or (nothing, nothing)
    measured = np.isfinite(drawn.values)
    heights = (
        drawn.values
        if drawn.predicted is None
        else np.where(measured, drawn.values, drawn.predicted)
    )
    places, points = _places(cases, cases), []
    for i in np.flatnonzero(np.isfinite(heights)):
        text = drawn.text(heights[i])
        point: dict[str, Any] = {**places[i], "value": _short(heights[i])}
        if low[i] < high[i]:
            point |= {"low": _short(low[i]), "high": _short(high[i])}
            text = units.interval(text, drawn.text(low[i]), drawn.text(high[i]))
        if not measured[i]:
            point["predicted"] = True
            reason = outcome_phrase(cases["outcome"].iloc[i], cases["cause"].iloc[i])
            text = f"predicted {text}; {reason}"
        points.append(point | {"text": text})
    named = drawn.unit not in STEPS and drawn.unit not in PLAIN
    points.sort(key=lambda point: (point["mode"], point["series"], point["n"]))
    return {
        "key": drawn.key,
        "label": drawn.label,
        "axis": f"{drawn.axis}, {drawn.unit}" if named else drawn.axis,
        "units": [list(step) for step in STEPS.get(drawn.unit, ())],
        "base": 2 if drawn.unit is Unit.BYTES else 10,
        "note": drawn.note,
        "log": bool((heights[np.isfinite(heights)] > 0).all()),
        "points": points,
    }


def _look(name: str, label: str, style: Mapping[str, Any]) -> dict[str, Any]:
    stroke = style["linestyle"]
    return {
        "name": label.replace("\n", AT),
        "title": clean(name),
        "light": style["color"],
        "dark": on_dark(style["color"]),
        "shape": marker_path(style["marker"]),
        "dash": [] if isinstance(stroke, str) else [2 * length for length in stroke[1]],
    }


def marker_path(marker: str) -> str:
    """A marker of matplotlib as an SVG path within -1 to 1."""
    from matplotlib.markers import MarkerStyle

    style = MarkerStyle(marker)
    (corners,) = style.get_path().transformed(style.get_transform()).to_polygons()
    points = corners @ np.array([1, -1j])
    points /= abs(points).max()
    return f"M{'L'.join(f'{z.real:.3f},{z.imag:.3f}' for z in points)}Z"


def _short(value: float) -> float:
    """The value in the digits that a chart can show."""
    if value == 0 or not math.isfinite(value):
        return 0.0
    return float(f"{value:.{DIGITS}g}")
