"""The data of a page's interactive chart: what Vega-Lite draws, and in which styles.

The specification is `web/chart.vl.json`, into which `web/page.js` puts the points that are chosen.
Every point carries its text, so that a page shows the same digits as the tables.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from attnbench import units
from attnbench.analysis.report import Analysis
from attnbench.analysis.summary import Frame, Row
from attnbench.metrics import MEMORY, ROWS, STATE, TABLE, TIME, Metric, Unit
from attnbench.records import PASSES
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


def charts(analysis: Analysis) -> dict[str, Any]:
    """Everything that the chart of one sweep can show."""
    cases, drawn = analysis.cases, [*costs(analysis.cases, analysis.sweep.request.batch_tokens)]
    if analysis.speedups is not None:
        drawn.append(_speedup(cases, analysis.speedups, analysis.baselines))
    return page_data(cases, drawn)


def page_data(cases: Frame, drawn: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The data of quantities of these cases; columns needed: series, mode, seq_len."""
    names = [*dict.fromkeys(map(str, cases["series"]))]
    styles, shown = series_styles(names), labels(names, longest=LONGEST)
    spec = json.loads(WEB.joinpath("chart.vl.json").read_text())
    lengths = {str(n): units.tick(n) for n in sorted(set(cases["seq_len"]))}
    spec["encoding"]["x"]["axis"] |= {
        "values": [int(n) for n in lengths],
        "labelExpr": f"{json.dumps(lengths)}[datum.value]",
    }
    order = {key: i for i, key in enumerate(COMPARED)}
    return {
        "spec": spec,
        "modes": [*dict.fromkeys(map(str, cases["mode"]))],
        "series": [_look(name, label, styles[name]) for name, label in shown.items()],
        "quantities": sorted(
            (one for one in drawn if one["points"]),
            key=lambda one: order.get(one["key"], len(order)),
        ),
    }


def costs(cases: Frame, tokens: int | None) -> Iterator[dict[str, Any]]:
    """Time of a batch and of a token, then every other metric that people compare.

    A batch is one of `tokens` tokens, or of the sweep's; in decode a step has no such time.
    """
    time, token, of = TABLE[TIME], TABLE[TOKEN], per_layer(cases)
    per_batch = cases["batch_scale"].where(cases["mode"].isin(PASSES))
    label, guess = f"time per batch of {batch(cases, tokens)}", cases[time.prediction[0]]
    for metric, text, found in (
        (time, label, points(cases, time, per_batch)),
        (token, token.label, points(cases, token).assign(guess=guess / cases["outputs"])),
    ):
        axis = text.replace("time", timed_by(cases), 1) + of
        yield _quantity(cases, metric.key, text, axis, found, INTERVALS, metric.unit)
    for metric in ROWS:
        if metric.offered and metric.key in cases and metric not in (time, token):
            axis = metric.label + (of if metric.of_a_layer else "")
            if metric.unit not in (*STEPS, *PLAIN):
                axis += f", {metric.unit}"
            note = f"{units.capitalised(metric.description)}."
            note += f" {INTERVALS}" if metric.interval else ""
            found = points(cases, metric)
            yield _quantity(cases, metric.key, metric.label, axis, found, note, metric.unit)


def _speedup(cases: Frame, speedups: Frame, baselines: Sequence[str]) -> dict[str, Any]:
    paired = cases[["series", "mode", "seq_len"]].merge(speedups, how="left")
    found = paired[["ratio", "low", "high"]].set_axis(["value", "low", "high"], axis=1)
    found = found.assign(guess=np.nan).set_axis(cases.index)
    base = compared_with(cases["series"], baselines)
    label, note = f"speed-up over {base}", f"Above 1 is faster than {base}. {INTERVALS}"
    axis = f"{label}, ×{per_layer(cases)}"
    return _quantity(cases, "speedup", label, axis, found, note, Unit.RATIO)


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


def _quantity(
    cases: Frame, key: str, label: str, axis: str, found: Frame, note: str, unit: Unit
) -> dict[str, Any]:
    """A quantity against length, from its `points`; `key` names it in links."""
    numbers = {name: pd.factorize(cases[name])[0] for name in ("series", "mode")}
    drawn = cases[["seq_len", "outcome", "cause"]].assign(**numbers).join(found.astype(float))
    drawn["height"] = drawn["value"].fillna(drawn["guess"])
    drawn = drawn.dropna(subset="height").sort_values(["mode", "series", "seq_len"])
    return {
        "key": key,
        "more": key not in COMPARED,
        "label": label,
        "axis": axis,
        "text": _tick_text(unit),
        "base": 2 if unit is Unit.BYTES else 10,
        "note": note,
        "log": bool((drawn["height"] > 0).all()),
        "points": [_point(row, unit) for _, row in drawn.iterrows()],
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
        "name": label,
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
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else 0.0
