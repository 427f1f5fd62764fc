"""The data of a page's interactive chart: what Vega-Lite draws, and in which styles.

The specification is `web/chart.vl.json`, into which `web/page.js` puts the points that are chosen.
Every point carries its text, so that a page shows the same digits as the tables.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from attnbench import units
from attnbench.analysis.report import Analysis
from attnbench.analysis.summary import Frame, Row
from attnbench.metrics import MEMORY, ROWS, STATE, TABLE, TIME, Metric, Unit
from attnbench.records import AT, PASSES
from attnbench.render.cases import outcome_phrase
from attnbench.render.cost_tables import batch, per_layer, timed_by
from attnbench.render.grid import clean, quantity
from attnbench.render.html import WEB
from attnbench.render.names import compared_with
from attnbench.render.styles import labels, on_dark, series_styles

DIGITS = 6  # significant, of what is drawn; texts and files have all that is known

TOKEN = "token_s"
# what people compare, in the order of the menu, which has the rest below them
COMPARED = (
    *(TIME, TOKEN, "speedup", "tokens_per_s", MEMORY),
    *("ttft_s", STATE, "flops", "parameters", "over_bound"),
)
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
class Quantity:
    """A quantity against length, with a row of `points` for each case.

    Columns: value, low, high, and guess, which counts where there is no value; NaN is unknown.
    `key` names it in links, and `unit` decides in which unit the axis counts.
    """

    key: str
    label: str
    axis: str
    points: Frame
    unit: Unit = Unit.RATIO
    note: str = ""


def charts(analysis: Analysis) -> dict[str, Any]:
    """Everything that the chart of one sweep can show."""
    cases, drawn = analysis.cases, [*costs(analysis.cases, analysis.sweep.request.batch_tokens)]
    if analysis.speedups is not None:
        drawn.append(_speedup(cases, analysis.speedups, analysis.baselines))
    return page_data(cases, drawn)


def page_data(cases: Frame, drawn: Sequence[Quantity]) -> dict[str, Any]:
    """The data of quantities of these cases; columns needed: series, mode, seq_len."""
    names = [*dict.fromkeys(map(str, cases["series"]))]
    styles, shown = series_styles(names), labels(names, longest=LONGEST)
    spec = json.loads(WEB.joinpath("chart.vl.json").read_text())
    lengths = {str(n): units.tick(n) for n in sorted(set(cases["seq_len"]))}
    spec["encoding"]["x"]["axis"] |= {
        "values": [int(n) for n in lengths],
        "labelExpr": f"{json.dumps(lengths)}[datum.value]",
    }
    numbers = {name: pd.factorize(cases[name])[0] for name in ("series", "mode")}
    every = cases[["seq_len", "outcome", "cause"]].assign(**numbers)
    quantities = [each for each in (_data(one, every) for one in drawn) if each["points"]]
    order = {key: i for i, key in enumerate(COMPARED)}
    return {
        "spec": spec,
        "modes": [*dict.fromkeys(map(str, cases["mode"]))],
        "series": [_look(name, label, styles[name]) for name, label in shown.items()],
        "quantities": sorted(quantities, key=lambda one: order.get(one["key"], len(order))),
    }


def costs(cases: Frame, tokens: int | None) -> Iterator[Quantity]:
    """Time of a batch and of a token, then every other metric that people compare.

    A batch is one of `tokens` tokens, or of the sweep's; in decode a step has no such time.
    """
    per_batch = cases["batch_scale"].where(cases["mode"].isin(PASSES))
    label = f"time per batch of {batch(cases, tokens)}"
    token, guess = TABLE[TOKEN], cases[TABLE[TIME].prediction[0]] / cases["outputs"]

    def axis(label: str) -> str:
        return label.replace("time", timed_by(cases), 1) + per_layer(cases)

    time = _quantity(TABLE[TIME], cases, per_batch)
    yield replace(time, label=label, axis=axis(label), note=INTERVALS)
    each = _quantity(token, cases)
    yield replace(each, axis=axis(token.label), points=each.points.assign(guess=guess))
    for metric in ROWS:
        if metric.offered and metric.key in cases and metric.key not in (TIME, TOKEN):
            yield _quantity(metric, cases)


def _speedup(cases: Frame, speedups: Frame, baselines: Sequence[str]) -> Quantity:
    paired = cases[["series", "mode", "seq_len"]].merge(speedups, how="left")
    points = paired[["ratio", "low", "high"]].set_axis(["value", "low", "high"], axis=1)
    base = compared_with(cases["series"], baselines)
    label, note = f"speed-up over {base}", f"Above 1 is faster than {base}. {INTERVALS}"
    axis = f"{label}, ×{per_layer(cases)}"
    points = points.assign(guess=np.nan).set_axis(cases.index)
    return Quantity(key="speedup", label=label, axis=axis, points=points, note=note)


def points(cases: Frame, metric: Metric, scale: pd.Series | float = 1.0) -> Frame:
    """A metric of each case, times `scale`: value, low and high; a guess where it has no value.

    Low and high are the ends of its interval, or of the band of the guess; NaN is unknown.
    """
    found = cases.reindex(columns=[*metric.estimate[:3], *metric.prediction]).astype(float)
    found = found.mul(scale, axis=0)
    found.columns = ["value", "low", "high", "guess", "least", "most"]
    if not metric.predicted:
        found[["guess", "least", "most"]] = np.nan
    known = found["value"].notna()
    return found[["value"]].assign(
        low=found["low"].where(known, found["least"]),
        high=found["high"].where(known, found["most"]),
        guess=found["guess"].mask(known),
    )


def _quantity(metric: Metric, cases: Frame, scale: pd.Series | float = 1.0) -> Quantity:
    text = f"{units.capitalised(metric.description)}."
    axis = metric.label + (per_layer(cases) if metric.of_a_layer else "")
    return Quantity(
        key=metric.key, label=metric.label, unit=metric.unit, points=points(cases, metric, scale),
        axis=axis if metric.unit in (*STEPS, *PLAIN) else f"{axis}, {metric.unit}",
        note=f"{text} {INTERVALS}" if metric.interval else text,
    )  # fmt: skip


def _data(one: Quantity, cases: Frame) -> dict[str, Any]:
    """The quantity with the points of `cases`, whose series and modes are numbers."""
    drawn = cases.join(one.points.assign(height=one.points["value"].fillna(one.points["guess"])))
    drawn = drawn.dropna(subset="height").sort_values(["mode", "series", "seq_len"])
    return {
        "key": one.key,
        "more": one.key not in COMPARED,
        "label": one.label,
        "axis": one.axis,
        "text": _tick_text(one.unit),
        "base": 2 if one.unit is Unit.BYTES else 10,
        "note": one.note,
        "log": bool((drawn["height"] > 0).all()),
        "points": [_point(row, one.unit) for _, row in drawn.iterrows()],
    }


def _point(row: Row, unit: Unit) -> dict[str, Any]:
    """What is drawn of a case, and its text."""
    low, high, text = row["low"], row["high"], quantity(row["height"], unit)
    point = {"series": row["series"], "mode": row["mode"], "n": row["seq_len"]}
    point["value"] = _short(row["height"])
    if low < high:
        point |= {"low": _short(low), "high": _short(high)}
        text = units.interval(text, quantity(low, unit), quantity(high, unit))
    if math.isnan(row["value"]):
        reason = outcome_phrase(row["outcome"], row["cause"])
        return point | {"predicted": True, "text": f"predicted {text}; {reason}"}
    return point | {"text": text}


def _tick_text(unit: Unit) -> str:
    """The expression of a tick's text in the largest unit that it reaches: `300 ms`, `1 GiB`."""
    text = "format(datum.value, ',~r')"
    for name, size in STEPS.get(unit, ()):
        larger = f"format(datum.value / {size}, ',~r') + ' {name}'"
        text = f"datum.value >= {0.999 * size} ? {larger} : {text}"
    return f"datum.label && ({text})"


def _look(name: str, label: str, style: Mapping[str, Any]) -> dict[str, Any]:
    stroke = style["linestyle"]
    return {
        "name": label.replace("\n", AT),
        "title": clean(name),
        "colour": f"light-dark({style['color']}, {on_dark(style['color'])})",
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
