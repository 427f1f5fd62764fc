"""Fig. 2 of the Fastformer paper from a sweep, the same figure of other costs, and of decoding.

Both axes are logarithmic. Where a case was not measured the curve continues, light and dotted, to
an open marker at the predicted cost. A case that cannot run has no predicted cost and no marker; a
note says so.
"""

import io
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import log2
from textwrap import fill
from types import MappingProxyType
from typing import Any, NamedTuple

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.markers import CARETUP
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from attnbench.analysis import Frame
from attnbench.records import PASSES, metrics, modes, units
from attnbench.report.cases import outcome_phrase
from attnbench.report.cost_tables import ALLOCATED, batch, per_layer, per_step, timed_by
from attnbench.report.grid import quantity
from attnbench.report.guides import draw_guides, slopes_note, with_room
from attnbench.report.sizes import LAYOUTS, Layout, ReportSize
from attnbench.report.styles import SUSPECT, labels, series_styles, tinted

PAGE = LAYOUTS[ReportSize.PAGE]
WIDTH = PAGE.width  # in inches
DPI = 300  # of PNG

# in points, beside type of 7 points
BESIDE = 112.0  # width of a typical legend
SCALE = 49.0  # width of a vertical scale
LETTER = 4.5  # width of a letter of a tick
APART = 5.6  # least distance of two ticks
EDGE = 3.0
KEYS = 112.0  # least width of a column of a legend below panels
WIDEST = 23  # letters in a line of the legend

# multiples of the powers of each base at which an axis may have ticks, from coarse to fine
MULTIPLES: Mapping[int, tuple[tuple[float, ...], ...]] = MappingProxyType({
    10: ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8),
         (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9)),
    2: ((1,), (1, 1.5), (1, 1.25, 1.5, 1.75)),
})  # fmt: skip
FEWEST = 4  # ticks, where multiples allow it
MOST = 8

LEAST = 2.0  # least ratio of the top of a vertical axis to its bottom
ROOM = 1.15  # margin below the least and above the greatest value, as a factor
# predictions beyond what was measured leave the panel after this factor, so that curves keep room
BEYOND = 4.0
LIGHTER = 0.35  # how far predictions are moved towards white
GUIDE = 0.6  # width of guides of slopes, in points beside type of 7 points

STYLE: Mapping[Any, Any] = MappingProxyType({
    "text.parse_math": False, "axes.titlelocation": "left",
    "axes.spines.top": False, "axes.spines.right": False,
    "axes.axisbelow": True, "axes.grid": True, "grid.color": "0.88", "grid.linewidth": 0.3,
    "xtick.major.size": 2.3, "xtick.minor.size": 2.3, "ytick.major.size": 2.3,
    "legend.frameon": False, "legend.labelspacing": 0.25, "legend.borderpad": 0.2,
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.w_pad": EDGE / 72, "figure.constrained_layout.h_pad": EDGE / 72,
    "pdf.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "attnbench",
})  # fmt: skip
STRENGTHS = ("linewidth", "markersize", "markeredgewidth")


class Panel(NamedTuple):
    """The points of one panel, and what its vertical axis counts."""

    title: str
    points: Frame
    axis: str
    unit: metrics.Unit


def cost_figure(
    cases: Frame, metric: metrics.Metric, tokens: int | None, layout: Layout = PAGE
) -> Figure:
    """A cost against length, of a batch or per token.

    The panels, one per mode, have one vertical scale.

    cases: `summary`.
    metric: what is drawn.
    tokens: of a batch; None: those of the sweep.
    layout: the place that the figure is made for.
    """
    axis = f"{metric.title or metric.label}{per_layer(cases)} per"
    axis += f" {'token' if metric.per_token else batch(cases, tokens)}"
    scale = 1 / cases["tokens"] if metric.per_token else cases["batch_scale"]
    drawn = dict(iter(points(cases, metric, scale).groupby("mode")))
    panels = [
        Panel(modes.find(mode).title, drawn[mode], axis, metric.unit)
        for mode in PASSES
        if mode in drawn
    ]
    note = _clock(cases) if metric.key == metrics.TIME else ""
    return _figure(panels, note, layout, shared=True)


def decode_figure(cases: Frame, mode: str, layout: Layout = PAGE) -> Figure:
    """Time per output token, and with it the size of the state, in a mode that steps."""
    of_mode = cases[cases["mode"] == mode]
    of = per_layer(cases)
    panels = [
        Panel(f"{title}{of}", points(of_mode, metrics.TABLE[key]), axis, metrics.TABLE[key].unit)
        for title, key, axis in (
            ("Time per decoding step", metrics.TIME, f"time per {per_step(of_mode)}"),
            ("Size of the state", metrics.STATE, "bytes"),
        )
    ]
    note = _clock(cases)
    if len(filled := of_mode[of_mode["filled"] & of_mode[metrics.TIME].notna()]):
        note += f"States filled without prompts from {units.tick(int(filled['seq_len'].min()))}. "
    return _figure(panels, note, layout, across="context")


def points(cases: Frame, metric: metrics.Metric, scale: pd.Series | float = 1.0) -> Frame:
    """A metric of each case, times `scale`, from short to long.

    Columns: series, mode, seq_len, suspect; `sequences`, of which it is the cost; `value` with its
    interval `low` to `high`, NaN where nothing was measured, for this `reason`; `guess`, a
    prediction there, if any; `height`, what is drawn of the two; `missed`, whether a peak misses
    memory.
    """
    columns = [*metric.estimate[:3], metrics.PREDICTED.get(metric.key, "")]
    scaled = cases.reindex(columns=columns).astype(float)
    scaled = scaled.mul(scale, axis=0).set_axis(["value", "low", "high", "guess"], axis=1)
    guess = scaled["guess"].mask(scaled["value"].notna())
    made = cases[["series", "mode", "seq_len", "suspect"]].assign(
        sequences=cases["batch"] * scale,
        value=scaled["value"],
        guess=guess,
        height=scaled["value"].fillna(guess),
        low=scaled["low"],
        high=scaled["high"],
        reason=[*map(outcome_phrase, cases["outcome"], cases["cause"])],
        missed=(cases["uncounted"] != "") & (metric.key in ALLOCATED),
    )
    return made.sort_values("seq_len", kind="stable")


def _clock(cases: Frame) -> str:
    """`CPU time on one core. `: what times are, where it is not the time of a device."""
    clock = timed_by(cases)
    return f"{units.capitalised(clock)}. " if clock != "time" else ""


def _figure(
    panels: Sequence[Panel],
    note: str,
    layout: Layout,
    *,
    shared: bool = False,
    across: str = "sequence length",
) -> Figure:
    """The panels side by side or one above the other, with a legend and a note below.

    The legend has the order in which curves end in the last panel that has them, suspects last.

    panels: their points, titles and axes.
    note: what is to be said of all; what is missing in the panels is added.
    layout: the place that the figure is made for.
    shared: whether all panels have one vertical scale.
    across: the name of the horizontal axis.
    """
    every = pd.concat([panel.points for panel in panels])
    ends = every[every["height"] > 0].groupby("series", sort=False)["height"].last()
    suspects = {*every.loc[every["suspect"] != "", "series"]}
    by_end = [*ends.sort_values(ascending=False, kind="stable").index, *every["series"]]
    order = dict.fromkeys(sorted(by_end, key=suspects.__contains__))
    names = labels(order, suspects)
    styles = series_styles(order, suspects)
    strong = {name: _strengthened(style, layout.scale) for name, style in styles.items()}
    above = False
    guided = layout.guides and every["seq_len"].nunique() > 1
    with styled(layout):
        figure = Figure(figsize=(layout.width, layout.width), dpi=DPI)
        shape = (len(panels), 1) if layout.stacked else (1, len(panels))
        grid = figure.subplots(*shape, sharey=shared, squeeze=False).flat
        for i, (axes, panel) in enumerate(zip(grid, panels, strict=True)):
            low, high = limits(every if shared else panel.points)
            if guided:
                low, high = with_room(low, high)
            above |= bool((panel.points["guess"] > high).any())
            axes.set_title(panel.title)
            # limits first: where nothing is to be drawn an axis has none of its own
            axes.set_ylim(low, high)
            axes.set_yscale("log")
            for name, curve in panel.points.groupby("series", sort=False):
                _draw(axes, curve, strong[str(name)], high)
            if guided:
                draw_guides(axes, panel.points, GUIDE * layout.scale, layout.small)
            length_axis(axes, map(int, panel.points["seq_len"]), shape[1], layout)
            if i == len(panels) - 1 or not layout.stacked:
                short = " (K = 1,024)" if every["seq_len"].max() >= 1024 else ""
                axes.set_xlabel(f"{across}{short}")
            ticks = log_ticks(low, high, 2 if panel.unit is metrics.Unit.BYTES else 10)
            texts = {tick: units.round_tick(quantity(tick, panel.unit)) for tick in ticks}
            fixed_ticks(axes.yaxis, texts)
            if i == 0 or layout.stacked or not shared:
                axes.set_ylabel(panel.axis)
        figure.align_ylabels()
        note += slopes_note([*every["mode"].unique()] if guided else [])
        note += " ".join(_notes(every, names, above))
        lay_out(figure, {names[name]: strong[name] for name in order}, note, layout)
    return figure


def _strengthened(style: Mapping[str, Any], scale: float) -> dict[str, Any]:
    """The style of a curve with lines and markers that stand beside larger type."""
    return {**style, **{key: scale * style[key] for key in STRENGTHS}}


def _draw(axes: Axes, curve: Frame, style: Mapping[str, Any], high: float) -> None:
    """A curve with its intervals; predictions are light and open.

    axes: of the panel.
    curve: the `points` of one series.
    style: of its line and markers.
    high: the end of the axis; predictions above it are arrows.
    """
    light = tinted(style["color"], LIGHTER)
    thin = 0.7 * style["linewidth"]
    length = curve["seq_len"]
    measured = curve["guess"].isna()
    axes.plot(length, curve["value"], **style)
    bars = {"color": style["color"], "linewidth": thin, "alpha": 0.6, "zorder": 1}
    axes.vlines(length, curve["low"], curve["high"], **bars)
    if measured.all():
        return
    joined = ~(measured & measured.shift(fill_value=True) & measured.shift(-1, fill_value=True))
    marked: dict[str, Any] = {"color": light, "zorder": 2, "linestyle": "none"}
    heights = curve["height"].where(joined)
    axes.plot(length, heights, **marked | {"linestyle": ":", "linewidth": thin})
    axes.plot(
        length, curve["guess"], **marked, marker=style["marker"], markerfacecolor="white",
        markersize=0.85 * style["markersize"], markeredgewidth=0.7 * style["markeredgewidth"],
    )  # fmt: skip
    above = length[curve["guess"] > high]
    size = 1.2 * style["markersize"]
    axes.plot(above, [high] * len(above), **marked, marker=CARETUP, markersize=size)


def missed_text(drawn: Frame, names: Mapping[str, str]) -> Iterator[str]:
    """Whose peaks among the drawn `points` miss memory, if any do; `names` has their labels."""
    missing = drawn.loc[drawn["missed"], "series"].unique()
    if len(missing):
        yield f"Peaks miss memory outside of torch: {', '.join(names[name] for name in missing)}."


def _notes(every: Frame, names: Mapping[str, str], above: bool) -> Iterator[str]:
    """What is missing in panels, and what open markers, arrows and bars are, if any."""
    if (every["suspect"] != "").any():
        yield f"{SUSPECT} suspect, not ranked."
    yield from missed_text(every, names)
    lost = every[every["height"].isna()]
    for why, alike in lost.groupby(lost["mode"] + ", " + lost["reason"], sort=False):
        which = ", ".join(names[name] for name in alike["series"].unique())
        yield f"{units.capitalised(str(why))}: {which}."
    guessed = every[every["guess"].notna()]
    if len(guessed):
        yield f"Open markers: predicted ({', '.join(guessed['reason'].unique())})."
    if above:
        yield "Arrows: predictions above the axis."
    if every["low"].notna().any():
        yield "Bars: 95\N{NO-BREAK SPACE}%\N{NO-BREAK SPACE}CI."


def limits(drawn: Frame) -> tuple[float, float]:
    """The ends of a vertical axis for what was measured and predictions close to it."""
    shown = drawn[["value", "guess", "low", "high"]]
    shown = shown.where(shown > 0)  # what a logarithmic axis can show
    centre = shown["value"] if shown["value"].notna().any() else shown["guess"]
    if centre.isna().all():
        return 1 / LEAST, LEAST
    near = shown.clip(centre.min() / BEYOND, centre.max() * BEYOND)
    low = float(near.min().min())
    high = float(near.max().max())
    # a flat curve looks flat, and there is room for distinct tick labels
    wider = ROOM * max(1.0, (LEAST / (high / low)) ** 0.5)
    return low / wider, high * wider


def length_axis(axes: Axes, lengths: Iterable[int], columns: int, layout: Layout) -> None:
    """Lengths along the bottom of one of `columns` panels side by side, with a tick for each.

    The last and first have texts, and as many others as there is room for, the longest first.
    """
    whole = sorted(set(lengths))
    texts = {n: units.tick(n) for n in whole}
    beside = 0.0 if layout.stacked else BESIDE
    # in points beside type of 7 points, as the measures are
    width = (72 * layout.width / layout.scale - beside) / columns - SCALE
    apart = (LETTER * max(map(len, texts.values())) + APART) / width
    octaves = log2(whole[-1] / whole[0]) or 1
    shown = [*dict.fromkeys((whole[-1], whole[0]))]
    for n in whole[::-1]:
        if all(abs(log2(n / other)) > apart * octaves for other in shown):
            shown.append(n)
    # limits first, as above
    axes.set_xlim(whole[0] / 1.15, whole[-1] * 1.15)
    axes.set_xscale("log", base=2)
    fixed_ticks(axes.xaxis, {n: texts[n] for n in shown})
    axes.xaxis.set_minor_locator(FixedLocator(whole))
    axes.xaxis.set_minor_formatter(NullFormatter())


def fixed_ticks(axis: Any, texts: Mapping[Any, str]) -> None:
    """Ticks at these values alone, with these texts."""
    axis.set_major_locator(FixedLocator([*texts]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: texts.get(value, "")))


def log_ticks(low: float, high: float, base: int) -> list[float]:
    """Round values within the bounds, the coarsest of which there are at least `FEWEST`.

    With base 2 all are sums of few powers of two, so that sizes are round in binary units.
    """
    ticks: list[float] = []
    for subs in MULTIPLES[base]:
        values = LogLocator(base, subs, numticks=MOST).tick_values(low, high)
        ticks = [float(tick) for tick in values if low <= tick <= high]
        if len(ticks) >= FEWEST:
            break
    return ticks


def lay_out(
    figure: Figure, keys: Mapping[str, Mapping[str, Any]], note: str, layout: Layout = PAGE
) -> None:
    """Add a legend of `keys`, styles of lines by their texts, and a note, and make room for both.

    The axes have scales and ticks. The legend stands beside panels that are side by side, and
    below those that are stacked.
    """
    lines = [Line2D([], [], **style) for style in keys.values()]
    texts = [fill(text, WIDEST) for text in keys]
    columns = max(1, int(72 * layout.width / layout.scale / KEYS)) if layout.stacked else 1
    where: Any = "lower left" if layout.stacked else "outside right upper"
    legend = figure.legend(lines, texts, loc=where, ncols=min(columns, len(keys) or 1))
    below_text = figure.supxlabel(
        note, x=EDGE / 72 / layout.width, ha="left", wrap=True, fontsize=layout.small, color="0.25"
    )
    named, below = (72 * each.get_window_extent().height / DPI for each in (legend, below_text))
    if not layout.stacked:
        figure.set_figheight((below + max(layout.height, named + layout.type)) / 72)
        return
    # the note is at the bottom, the legend above it, and the panels above both
    named += EDGE
    height = layout.height * len(figure.axes) + named + below
    figure.set_figheight(height / 72)
    legend.set_bbox_to_anchor((0, (below + EDGE) / height), figure.transFigure)
    legend.set_in_layout(False)
    engine: Any = figure.get_layout_engine()
    if engine is not None:
        engine.set(rect=(0, named / height, 1, 1 - named / height))


def saved(figure: Figure, suffix: str, layout: Layout = PAGE) -> bytes:
    """The figure as a file without dates, so that equal sweeps give equal bytes."""
    none = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
    target = io.BytesIO()
    with styled(layout):
        figure.savefig(target, format=suffix, metadata=none[suffix])
    return target.getvalue()


@contextmanager
def styled(layout: Layout = PAGE) -> Iterator[None]:
    """The context in which every figure is made and saved."""
    sizes: Mapping[Any, Any] = {
        **dict.fromkeys(("font.size", "legend.fontsize"), layout.type),
        **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), layout.small),
        "axes.titlesize": layout.type + 1,
        "axes.linewidth": 0.6 * layout.scale,
    }
    with matplotlib.rc_context({**STYLE, **sizes}), warnings.catch_warnings():
        # names may use letters that the font lacks; they show as boxes
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield
