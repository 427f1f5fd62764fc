"""The data of a page's interactive chart: what Vega-Lite draws, and in which styles.

The specification is `web/chart.vl.json`, into which `web/page.js` puts the points that are chosen.
Every point carries its text, so that a page shows the same digits as the tables.
"""

import json
import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from attnbench.analysis import Analysis, Frame, Row
from attnbench.errors import clean
from attnbench.records import PASSES, metrics, units
from attnbench.report.cost_tables import batch, per_layer, timed_by
from attnbench.report.figures import missed_text, points
from attnbench.report.grid import quantity
from attnbench.report.guides import slopes, slopes_note
from attnbench.report.html import WEB
from attnbench.report.names import MARK, baseline_label
from attnbench.report.styles import labels, on_dark, series_styles

# what people compare, in the order of the menu, which has the rest below them
COMPARED = (
    *(metrics.TIME, "token_s", "speedup", "tokens_per_s", metrics.MEMORY),
    *(metrics.STATE, "flops", "parameters", "over_bound"),
)
GUIDED = tuple(row.key for row in metrics.DRAWN)  # costs of so many sequences, as figures show them
PREDICTED = "Open markers on dotted lines are predicted."
INTERVALS = "Bars are 95 % confidence intervals."

# the units in which an axis counts, from small to large
STEPS = MappingProxyType({
    # ticks are powers of ten
    metrics.Unit.SECONDS: tuple(step for step in units.TIMES if step[1] <= 1),
    metrics.Unit.BYTES: units.SIZES,
    metrics.Unit.FLOPS: tuple((f"{prefix}FLOP", size) for prefix, size in units.PREFIXES),
})  # fmt: skip


def charts(analysis: Analysis, guided: bool = False) -> dict[str, Any] | None:
    """Everything that the chart of one sweep can show; None if nothing is known of any case.

    guided: whether it shows at first how steep costs are that grow as N and as N²
    """
    cases = analysis.cases
    every = (*_costs(analysis), *_speedup(analysis))
    if not (made := {one["key"]: one for one in every if one["points"]}):
        return None
    suspects = analysis.suspects
    names = labels(cases["series"], suspects)
    styles = series_styles(cases["series"], suspects)
    spec = json.loads(WEB.joinpath("chart.vl.json").read_text())
    lengths = {str(n): units.tick(n) for n in sorted(set(cases["seq_len"]))}
    predicted = any("predicted" in point for one in made.values() for point in one["points"])
    spec["encoding"]["x"]["axis"] |= {
        "values": [int(n) for n in lengths],
        "labelExpr": f"{json.dumps(lengths)}[datum.value]",
    }
    return {
        "spec": spec,
        "modes": analysis.modes,
        "guided": guided,
        "guide": slopes_note(analysis.modes).strip(),
        "series": {name: _look(name, names[name], styles[name]) for name in names},
        "marks": [PREDICTED] * predicted + [MARK] * bool(suspects),
        "quantities": [made[key] for key in dict.fromkeys((*COMPARED, *made)) if key in made],
    }


def _costs(analysis: Analysis) -> Iterator[dict[str, Any]]:
    """Every metric that people compare; the time is of a batch, in decode of a step."""
    cases = analysis.cases
    names = labels(cases["series"], analysis.suspects)
    of = per_layer(analysis.cases)
    whole = f"batch of {batch(cases, analysis.sweep.request.batch_tokens)}"
    per = dict.fromkeys(whole if mode in PASSES else "decoding step" for mode in analysis.modes)
    for metric in metrics.ROWS:
        if not metric.offered:
            continue
        label = metric.label + (of if metric.of_a_layer else "")
        if metric.key == metrics.TIME:
            label = f"{timed_by(cases)} per {' or '.join(per)}{of}"
        drawn = points(cases, metric, cases["batch_scale"] if metric.key == metrics.TIME else 1.0)
        missed = missed_text(drawn.dropna(subset="height"), names)
        note = " ".join((f"{units.capitalised(metric.description)}.", *missed))
        yield _quantity(metric.key, label, drawn, note, metric.unit)


def _speedup(analysis: Analysis) -> Iterator[dict[str, Any]]:
    """How many times faster than the baseline each series is, if there is one."""
    if (speedups := analysis.speedups) is None:
        return
    base = baseline_label(analysis.cases["series"], analysis.baselines, analysis.suspects)
    label = f"speed-up over {base}{per_layer(analysis.cases)}"
    ratios = speedups["ratio"]
    known = speedups.assign(value=ratios, height=ratios, reason="", missed=False)
    drawn = known.sort_values("seq_len")
    yield _quantity("speedup", label, drawn, f"Above 1 is faster than {base}.", metrics.Unit.RATIO)


def _quantity(key: str, label: str, drawn: Frame, note: str, unit: metrics.Unit) -> dict[str, Any]:
    """A quantity against length, as data for a page.

    key: names it in links.
    label: of the axis.
    drawn: its `points`.
    note: a sentence on it.
    unit: of its values.
    """
    drawn = drawn.dropna(subset="height")
    return {
        "key": key,
        "more": key not in COMPARED,
        "label": label,
        "text": _tick_text(unit),
        "base": 2 if unit is metrics.Unit.BYTES else 10,
        "note": f"{note} {INTERVALS}" if drawn["low"].notna().any() else note,
        "log": bool((drawn["height"] > 0).all()),
        "slopes": slopes(drawn) if key in GUIDED else {},
        "points": [_point(row, unit) for _, row in drawn.iterrows()],
    }


def _point(row: Row, unit: metrics.Unit) -> dict[str, Any]:
    """What is drawn of a case, and its text."""
    low = row["low"]
    high = row["high"]
    text = quantity(row["height"], unit)
    point = {name: row[name] for name in ("series", "mode")}
    point |= {"n": row["seq_len"], "value": row["height"]}
    if low < high:
        point |= {"low": low, "high": high}
        text = units.interval(text, quantity(low, unit), quantity(high, unit))
    if math.isnan(row["value"]):
        return point | {"predicted": True, "text": f"predicted {text}; {row['reason']}"}
    return point | {"text": f"{text}; it misses memory" if row["missed"] else text}


def _tick_text(unit: metrics.Unit) -> str:
    """The expression of a tick's text in the largest unit that it reaches: `300 ms`, `1 GiB`."""
    text = "format(datum.value, ',~r')" + (" + ' J'" if unit is metrics.Unit.JOULES else "")
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


def marker_path(marker: Any) -> str:
    """A marker of matplotlib as an SVG path within -1 to 1."""
    from matplotlib.markers import MarkerStyle

    style = MarkerStyle(marker)
    (corners,) = style.get_path().transformed(style.get_transform()).to_polygons()
    points = corners @ np.array([1, -1j])
    points /= abs(points).max()
    return f"M{'L'.join(f'{z.real:.3f},{z.imag:.3f}' for z in points)}Z"
