"""What figures share: panels in rows, one legend, files without dates.

The legend of a single row stands on the right, each entry as close to the height of its curve's end
as space allows, so that it names the curves of the last panel directly and is the key to all
others. Several rows share one legend below them, in columns.
All positions are in units of the type size or in points, so every size and format looks alike.
"""

import io
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from attnbench.render.styles import SHEETS, Sheet, labels, readable, series_styles, shortened

DPI = 300  # of PNG

# in units of the type size
LINE = 1.2  # distance between lines
TITLE, TICKS, LABEL = 2.2, 1.9, 1.5  # above the axes, for tick labels, and for the axis label
BETWEEN, EDGE = 1.4, 0.4  # between panels of a row, and to the edge of the sheet
GAP, KEY, SPACE = 1.6, 2.4, 0.4  # from the axes to the keys, length of a key, and to its name
SMALLER, LARGER = 0.93, 1.13  # ticks and notes, and titles
WIDEST = 13.0  # a line of the legend

STYLE = MappingProxyType({
    "text.parse_math": False, "axes.spines.top": False, "axes.spines.right": False,
    "axes.axisbelow": True, "pdf.fonttype": 42, "svg.fonttype": "none",
    "svg.hashsalt": "attnbench",
})  # fmt: skip


@contextmanager
def styled(sheet: Sheet = SHEETS[FigureSize.TEXT]) -> Iterator[None]:
    """The context in which every figure is made and saved."""
    style = {**STYLE, "font.size": sheet.type, "axes.linewidth": sheet.type / 12}
    with matplotlib.rc_context(dict[Any, Any](style)), warnings.catch_warnings():
        # names may use letters that the font lacks; they show as boxes
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield


class Ending(NamedTuple):
    """An entry of a legend: a series, where its curve ends, and what is to be added."""

    name: str
    at: tuple[float, float] | None
    why: str = ""


class Panels:
    """Rows of panels on a sheet, each row with one vertical scale, and their legend.

    `styles` are those of the series that the panels show.
    """

    def __init__(self, sheet: Sheet, series: Iterable[str], rows: int, columns: int) -> None:
        self.sheet = sheet
        self.styles = series_styles(series, sheet.type)
        self.figure = Figure(figsize=(sheet.width, sheet.width), dpi=DPI)
        self.rows: list[list[Axes]] = []
        for _ in range(rows):
            panels: list[Axes] = []
            for _ in range(columns):
                axes = self.figure.add_axes((0, 0, 1, 1), sharey=panels[0] if panels else None)
                axes.grid(True, linewidth=sheet.type / 24, color="0.88")
                axes.tick_params(
                    labelsize=SMALLER * sheet.type,
                    width=sheet.type / 12, length=sheet.type / 3, pad=sheet.type / 4,
                )  # fmt: skip
                axes.tick_params(axis="y", left=not panels, labelleft=not panels)
                panels.append(axes)
            self.rows.append(panels)

    def arranged(self, legends: Sequence[Sequence[Ending]], notes: Sequence[str] = ()) -> Figure:
        """The figure, once its axes have scales and ticks: with its legend, and notes below."""
        unit, width = self.sheet.type, 72 * self.sheet.width
        names = labels(ending.name for legend in legends for ending in legend)
        beside = len(legends) == 1
        legend = legends[0] if beside else self._shared(legends)
        texts = [entry_text(ending, names) for ending in legend]
        heights = [unit * LINE * (1 + text.count("\n")) for text in texts]
        lines = [line for text in texts for line in text.split("\n")]
        entry = unit * (KEY + SPACE) + max((text_width(line, unit) for line in lines), default=0.0)
        ends = max(self._tick_width(axes.xaxis) for row in self.rows for axes in row)
        left = unit * (LABEL + 1.1) + max(self._tick_width(row[0].yaxis) for row in self.rows)
        right = unit * EDGE + (unit * GAP + entry if beside else ends / 2)
        columns = len(self.rows[0])
        between = max(BETWEEN * unit, ends + 0.5 * unit)
        across = (width - left - right - (columns - 1) * between) / columns
        keys = [] if beside else in_columns(heights, int(width / (entry + unit)))
        key = max(map(sum, keys), default=0.0) + unit * EDGE * (not beside)
        said = [*notes, *([] if beside else self._reasons(legends, names))]
        # letters of a PNG stand at whole pixels, which makes a line up to 2 % wider
        lines = wrapped(" ".join(said), SMALLER * unit, 0.98 * width - 2 * unit * EDGE)
        tall = max([unit * self.sheet.height, *([sum(heights)] if beside else [])])
        notes_high = unit * (EDGE + LINE * len(lines))
        rows = len(self.rows)
        height = notes_high + key + unit * (LABEL + (TITLE + TICKS) * rows) + rows * tall
        self.figure.set_size_inches(self.sheet.width, height / 72)
        top = height
        for row in self.rows:
            bottom = top - unit * TITLE - tall
            for column, axes in enumerate(row):
                x = left + column * (across + between)
                axes.set_position((x / width, bottom / height, across / width, tall / height))
                _thin(axes, across, unit)
                # set, not found from the sizes of all tick labels, which takes long
                axes.xaxis.set_label_coords(0.5, -TICKS * unit / tall)
                axes.yaxis.set_label_coords((LABEL * unit - left) / across, 0.5)
            top = bottom - unit * TICKS
        if beside:
            self._beside(legend, texts, heights, (width - right, bottom, tall))
        else:
            self._below(legend, texts, keys, notes_high + key)
        for i, line in zip(reversed(range(len(lines))), lines, strict=True):
            y = unit * (EDGE + LINE * i) / height
            size = SMALLER * unit
            self.figure.text(EDGE * unit / width, y, line, fontsize=size, color="0.25", va="bottom")
        return self.figure

    def _shared(self, legends: Sequence[Sequence[Ending]]) -> list[Ending]:
        """One entry for each series, in the order of the ends of their curves, highest first."""
        heights: dict[str, float] = {}
        for row, legend in zip(self.rows, legends, strict=True):
            for ending, (_, y) in zip(legend, ends_of(row[-1], legend), strict=True):
                heights.setdefault(ending.name, y)
        every = {ending.name: ending._replace(why="") for one in legends for ending in one}
        return sorted(every.values(), key=lambda ending: -heights[ending.name])

    def _reasons(
        self, legends: Sequence[Sequence[Ending]], names: Mapping[str, str]
    ) -> Iterator[str]:
        """`Inference, cannot run from 32K: Fastformer.`: what is to be added to shared entries."""
        for row, legend in zip(self.rows, legends, strict=True):
            for why in dict.fromkeys(ending.why for ending in legend if ending.why):
                told = [names[e.name].replace("\n", ", ") for e in legend if e.why == why]
                yield f"{row[-1].get_title('left')}, {why}: {', '.join(told)}."

    def _tick_width(self, axis: Any) -> float:
        """The width of the widest label of an axis, in points."""
        texts = _ticks(axis).values()
        return max((text_width(text, SMALLER * self.sheet.type) for text in texts), default=0.0)

    def _beside(
        self,
        legend: Sequence[Ending],
        texts: Sequence[str],
        heights: Sequence[float],
        place: tuple[float, float, float],
    ) -> None:
        """Entries to the right of the last panel; those without an end stand at the bottom."""
        unit, (right, bottom, high) = self.sheet.type, place
        ends = ends_of(self.rows[0][-1], legend)
        wanted = [bottom + high * min(max(y, 0.0), 1.0) for _, y in ends]
        overlap = unit * LINE / 2  # an entry at a corner is centred on it
        centres = spread(wanted, heights, bottom - overlap, bottom + high + overlap)
        key = right + GAP * unit
        for ending, text, (x, y), want, centre in zip(
            legend, texts, ends, wanted, centres, strict=True
        ):
            self._entry(ending, text, key, centre)
            # a curve that ends early or leaves the panel is not led to: its key tells it
            if x > 0.9 and 0 <= y <= 1:
                colour = self.styles[ending.name]["color"]
                leader = {"color": colour, "linewidth": unit / 14, "alpha": 0.6}
                self._line([right + 0.45 * unit, key - 0.15 * unit], [want, centre], leader)

    def _below(
        self,
        legend: Sequence[Ending],
        texts: Sequence[str],
        columns: Sequence[Sequence[float]],
        top: float,
    ) -> None:
        """Entries in columns of these heights, from the left edge of the sheet."""
        entries = zip(legend, texts, strict=True)
        step = (72 * self.sheet.width - self.sheet.type * EDGE) / max(1, len(columns))
        for i, heights in enumerate(columns):
            y = top
            for height in heights:
                ending, text = next(entries)
                self._entry(ending, text, self.sheet.type * EDGE + i * step, y - height / 2)
                y -= height

    def _entry(self, ending: Ending, text: str, x: float, y: float) -> None:
        """The key of a series and its name, from `x` on, in points from the lower left corner."""
        unit, style = self.sheet.type, {**self.styles[ending.name], "markevery": [1]}
        self._line([x, x + KEY / 2 * unit, x + KEY * unit], [y] * 3, style)
        self.figure.text(
            x + (KEY + SPACE) * unit, y, text, transform=self._points,
            color=readable(style["color"]), linespacing=1.0, va="center",
        )  # fmt: skip

    def _line(self, x: list[float], y: list[float], style: Mapping[str, Any]) -> None:
        self.figure.add_artist(Line2D(x, y, transform=self._points, **style))

    @property
    def _points(self) -> Any:
        return Affine2D().scale(1 / 72) + self.figure.dpi_scale_trans


def ends_of(axes: Axes, legend: Sequence[Ending]) -> list[tuple[float, float]]:
    """Where curves end, in units of the axes; below them without an end."""
    to_axes = axes.transData - axes.transAxes
    return [(0.0, -1.0) if e.at is None else tuple(to_axes.transform(e.at)) for e in legend]


def entry_text(ending: Ending, names: Mapping[str, str]) -> str:
    """The lines of an entry, folded and shortened to `WIDEST`; `names` are the labels of all."""
    lines = (names[ending.name] + (f"\n{ending.why}" if ending.why else "")).split("\n")
    return "\n".join(_fitted(part) for line in lines for part in _folded(line))


def _folded(line: str) -> list[str]:
    """A wide line in two: form and options below the mechanism."""
    mechanism, bracket, further = line.partition(" (")
    wide = bracket and text_width(line, 1.0) > WIDEST
    return [mechanism, f"({further}"] if wide else [line]


def _fitted(line: str) -> str:
    """The line, with more of its middle left out if its letters are wide."""
    longest = len(line)
    while longest > 3 and text_width(line, 1.0) > WIDEST:
        longest -= 1
        line = shortened(line, longest)
    return line


@cache
def text_width(text: str, size: float) -> float:
    """The width in points of a line of text."""
    font, measure = FontProperties(size=10), TextToPath().get_text_width_height_descent
    return size / 10 * float(measure(text, font, ismath=False)[0])


def wrapped(text: str, size: float, width: float) -> list[str]:
    """Lines of whole words that are at most `width` points wide; some spaces do not break."""
    lines: list[str] = []
    for word in text.split(" "):
        if lines and text_width(f"{lines[-1]} {word}", size) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def in_columns(heights: Sequence[float], most: int) -> list[Sequence[float]]:
    """Heights of entries in at most so many columns of one length."""
    each = math.ceil(len(heights) / max(1, most)) or 1
    return [heights[i : i + each] for i in range(0, len(heights), each)]


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
        for half in [(text_width(text, SMALLER * unit) + 0.7 * unit) / 2]
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


def saved(figure: Figure, suffix: str) -> bytes:
    """The figure as a file without dates, so that equal sweeps give equal bytes."""
    none = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
    target = io.BytesIO()
    with styled():
        figure.savefig(target, format=suffix, metadata=none[suffix])
    return target.getvalue()
