"""What figures share: panels in rows, one legend to a row, files without dates.

The legend stands on the right, each entry as close to the height of its curve's end as space
allows, so that it names the curves of the last panel directly and is the key to all others.
All positions are in units of the type size or in points, so every size and format looks alike.
"""

import io
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from statistics import fmean
from types import MappingProxyType
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.textpath import TextToPath
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from matplotlib.transforms import Affine2D

from attnbench import units
from attnbench.records import FigureSize
from attnbench.render.styles import SHEETS, Sheet, labels, readable, shortened

DPI = 300  # of PNG

# in units of the type size
LINE = 1.2  # distance between lines
TITLE, TICKS, LABEL = 2.2, 1.9, 1.5  # above the axes, for tick labels, and for the axis label
BETWEEN, EDGE = 1.4, 0.4  # between panels of a row, and to the edge of the sheet
GAP, KEY, SPACE = 1.6, 2.4, 0.4  # from the axes to the keys, length of a key, and to its name
WIDEST = 13.0  # of a name in the legend
SMALLER, LARGER = 0.93, 1.13  # ticks and notes, and titles

STYLE = MappingProxyType({
    "text.parse_math": False, "axes.spines.top": False, "axes.spines.right": False,
    "axes.axisbelow": True, "pdf.fonttype": 42, "svg.fonttype": "none",
    "svg.hashsalt": "attnbench",
})  # fmt: skip


class Ending(NamedTuple):
    """An entry of a legend: a series, its style, where its curve ends, and what is to be added."""

    name: str
    style: Mapping[str, Any]
    at: tuple[float, float] | None
    why: str = ""


@contextmanager
def styled(sheet: Sheet = SHEETS[FigureSize.TEXT]) -> Iterator[None]:
    """The context in which every figure is made and saved."""
    style = {**STYLE, "font.size": sheet.type, "axes.linewidth": sheet.type / 12}
    with matplotlib.rc_context(dict[Any, Any](style)), warnings.catch_warnings():
        # names may use letters that the font lacks; they show as boxes
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield


class Panels:
    """Rows of panels on a sheet, each row with one vertical scale and one legend."""

    def __init__(self, sheet: Sheet, rows: int, columns: int) -> None:
        self.sheet = sheet
        self.figure = Figure(figsize=(sheet.width, sheet.width), dpi=DPI)
        self.rows: list[list[Axes]] = []
        for row in range(rows):
            panels: list[Axes] = []
            for _ in range(columns):
                # a distinct place, since equal axes would be one
                place = (0, 0, 1, 1 - 0.01 * (row * columns + len(panels)))
                axes = self.figure.add_axes(place, sharey=panels[0] if panels else None)
                axes.grid(True, linewidth=sheet.type / 24, color="0.88")
                axes.tick_params(
                    labelsize=SMALLER * sheet.type,
                    width=sheet.type / 12, length=sheet.type / 3, pad=sheet.type / 4,
                )  # fmt: skip
                axes.tick_params(axis="y", left=not panels, labelleft=not panels)
                panels.append(axes)
            self.rows.append(panels)

    def label(self, row: int, text: str) -> None:
        """Set the label of a row's vertical axis."""
        self.rows[row][0].set_ylabel(text)

    def arranged(self, legends: Sequence[Sequence[Ending]], notes: Sequence[str] = ()) -> Figure:
        """The figure, once its axes have scales and ticks: a legend for each row, notes below."""
        unit, width = self.sheet.type, 72 * self.sheet.width
        names = labels(ending.name for legend in legends for ending in legend)
        texts = [[_text(ending, names) for ending in legend] for legend in legends]
        left = unit * (LABEL + 1.1) + max(self._tick_width(row[0].yaxis) for row in self.rows)
        lines = [line for entries in texts for text in entries for line in text.split("\n")]
        gutter = unit * (GAP + KEY + SPACE + EDGE) + max(
            (_width(t, unit) for t in lines), default=0
        )
        columns = len(self.rows[0])
        ends = max(self._tick_width(axes.xaxis) for row in self.rows for axes in row)
        between = max(BETWEEN * unit, ends + 0.5 * unit)
        across = (width - left - gutter - (columns - 1) * between) / columns
        wrapped = textwrap.wrap(" ".join(notes), int(width / (0.5 * unit)))
        tall = [
            unit * max(self.sheet.height, LINE * sum(1 + text.count("\n") for text in entries))
            for entries in texts
        ]
        below = unit * (TICKS + LABEL + LINE * len(wrapped) + EDGE)
        height = sum(tall) + below + unit * (TITLE * len(tall) + TICKS * (len(tall) - 1))
        self.figure.set_size_inches(self.sheet.width, height / 72)
        top = height
        for row, legend, entries, high in zip(self.rows, legends, texts, tall, strict=True):
            bottom = top - unit * TITLE - high
            for column, axes in enumerate(row):
                x = left + column * (across + between)
                axes.set_position((x / width, bottom / height, across / width, high / height))
                _thin(axes, across, unit)
                # set, not found from the sizes of all tick labels, which takes long
                axes.xaxis.set_label_coords(0.5, -TICKS * unit / high)
                axes.yaxis.set_label_coords((LABEL * unit - left) / across, 0.5)
            self._legend(row[-1], legend, entries, (width - gutter, bottom, high))
            top = bottom - unit * TICKS
        for i, line in enumerate(reversed(wrapped)):
            y = unit * (EDGE + LINE * i) / height
            size = SMALLER * unit
            self.figure.text(EDGE * unit / width, y, line, fontsize=size, color="0.25", va="bottom")
        return self.figure

    def _tick_width(self, axis: Any) -> float:
        """The width of the widest label of an axis, in points."""
        texts = _ticks(axis).values()
        return max((_width(text, SMALLER * self.sheet.type) for text in texts), default=0.0)

    def _legend(
        self,
        axes: Axes,
        legend: Sequence[Ending],
        texts: Sequence[str],
        place: tuple[float, float, float],
    ) -> None:
        """Entries to the right of the last panel; those without an end stand at the bottom."""
        unit, (right, bottom, high) = self.sheet.type, place
        to_axes = axes.transData - axes.transAxes
        ends = [(0.0, -1.0) if e.at is None else tuple(to_axes.transform(e.at)) for e in legend]
        wanted = [bottom + high * min(max(y, 0.0), 1.0) for _, y in ends]
        heights = [unit * LINE * (1 + text.count("\n")) for text in texts]
        overlap = unit * LINE / 2  # an entry at a corner is centred on it
        points = Affine2D().scale(1 / 72) + self.figure.dpi_scale_trans
        centres = spread(wanted, heights, bottom - overlap, bottom + high + overlap)
        for ending, text, (x, y), want, centre in zip(
            legend, texts, ends, wanted, centres, strict=True
        ):
            key = right + GAP * unit
            style = {**ending.style, "markevery": [1]}
            self._line([key, key + KEY / 2 * unit, key + KEY * unit], [centre] * 3, points, style)
            # a curve that ends early or leaves the panel is not led to: its key tells it
            if x > 0.9 and 0 <= y <= 1:
                leader = {"color": ending.style["color"], "linewidth": unit / 14, "alpha": 0.6}
                self._line([right + 0.45 * unit, key - 0.15 * unit], [want, centre], points, leader)
            self.figure.text(
                key + (KEY + SPACE) * unit, centre, text, transform=points,
                color=readable(ending.style["color"]), linespacing=1.0, va="center",
            )  # fmt: skip

    def _line(self, x: list[float], y: list[float], transform: Any, style: Any) -> None:
        self.figure.add_artist(Line2D(x, y, transform=transform, **style))


def title(axes: Axes, text: str, sheet: Sheet) -> None:
    """The title of a panel, above its left end."""
    size = LARGER * sheet.type
    pad = 0.6 * sheet.type
    # with a height of its own, as nothing can be in its way
    axes.set_title(text, loc="left", fontsize=size, pad=pad, y=1.0)


def length_axis(axes: Axes, lengths: Sequence[int], label: bool) -> None:
    """Lengths along the bottom: a tick for each of few, else for the powers of two."""
    whole = sorted(set(lengths))
    ticks = whole if len(whole) <= 12 else [n for n in whole if n & (n - 1) == 0] or whole
    length_ticks(axes, ticks)
    axes.set_xlim(min(whole) / 1.15, max(whole) * 1.15)
    if label:
        short = any(units.tick(n).endswith("K") for n in ticks)
        axes.set_xlabel("sequence length" + " (K = 1,024)" * short)


def length_ticks(axes: Axes, lengths: Sequence[float]) -> None:
    """Ticks at these lengths alone: `128`, `1K`."""
    fixed_ticks(axes.xaxis, {float(n): units.tick(round(n)) for n in lengths})


def fixed_ticks(axis: Any, texts: Mapping[float, str]) -> None:
    """Ticks at these values alone, with these texts."""
    axis.set_major_locator(FixedLocator(list(texts)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: texts.get(value, "")))


def _thin(axes: Axes, across: float, unit: float) -> None:
    """Label every tick of the horizontal axis, or as many of every n-th as do not touch."""
    ticks = _ticks(axes.xaxis)
    to_axes = axes.transData - axes.transAxes
    places = [across * to_axes.transform((tick, 1.0))[0] for tick in ticks]
    spans = [
        (x - half, x + half)
        for x, text in zip(places, ticks.values(), strict=True)
        for half in [(_width(text, SMALLER * unit) + 0.7 * unit) / 2]
    ]
    step = 1
    while any(one[1] > two[0] for one, two in pairwise(spans[::-step][::-1])):
        step += 1
    kept = {*range(len(ticks) - 1, -1, -step)}
    shown = {tick: text if i in kept else "" for i, (tick, text) in enumerate(ticks.items())}
    fixed_ticks(axes.xaxis, shown)


def _ticks(axis: Any) -> dict[float, str]:
    """The ticks in view, with their texts."""
    low, high = axis.get_view_interval()
    ticks = [float(tick) for tick in axis.get_majorticklocs() if low <= tick <= high]
    return dict(zip(ticks, axis.get_major_formatter().format_ticks(ticks), strict=True))


def _text(ending: Ending, names: Mapping[str, str]) -> str:
    lines = (names[ending.name] + (f"\n{ending.why}" if ending.why else "")).split("\n")
    return "\n".join(map(_fitted, lines))


def _fitted(line: str) -> str:
    """The line, with more of its middle left out if its letters are wide."""
    longest = len(line)
    while longest > 3 and _width(line, 1.0) > WIDEST:
        longest -= 1
        line = shortened(line, longest)
    return line


@cache
def _width(text: str, size: float) -> float:
    """The width in points of a line of text."""
    font, measure = FontProperties(size=10), TextToPath().get_text_width_height_descent
    return size / 10 * float(measure(text, font, ismath=False)[0])


def spread(
    wanted: Sequence[float], heights: Sequence[float], low: float, high: float
) -> list[float]:
    """Centres of labels as close to `wanted` as possible, in that order, without overlap.

    Positions above a stack of all labels must not decrease, so they are fitted by isotonic
    regression: labels that would overlap are pooled at their mean. If the labels do not fit between
    `low` and `high`, their heights shrink evenly.
    """
    squeeze = min(1.0, (high - low) / max(sum(heights), 1e-9))
    free = high - low - squeeze * sum(heights)
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    stacked: dict[int, float] = {}
    top = low
    for i in order:
        stacked[i] = top + squeeze * heights[i] / 2
        top += squeeze * heights[i]
    pools: list[list[float]] = []
    for i in order:
        pools.append([wanted[i] - stacked[i]])
        while len(pools) > 1 and fmean(pools[-2]) > fmean(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    raised = [min(max(fmean(pool), 0.0), free) for pool in pools for _ in pool]
    centres = {i: stacked[i] + shift for i, shift in zip(order, raised, strict=True)}
    return [centres[i] for i in range(len(wanted))]


def saved(figure: Figure, suffix: str) -> bytes:
    """The figure as a file without dates, so that equal sweeps give equal bytes."""
    none = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
    target = io.BytesIO()
    with styled():
        figure.savefig(target, format=suffix, metadata=none[suffix])
    return target.getvalue()
