"""What figures share: panels of a fixed size, labels next to curves, files without dates."""

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean
from types import MappingProxyType
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextToPath
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from attnbench import units
from attnbench.analysis.devices import AT
from attnbench.render.styles import labels, readable

PANEL = (4.0, 2.8)  # inches; scaled to a column of a two-column page the text is 6 points
MARGINS = MappingProxyType({"left": 0.54, "right": 1.52, "bottom": 0.4, "top": 0.4})  # inches
# points, of the labels next to a panel
TYPE, LINE = 7.0, 8.6  # font size, and distance between lines
GAP, EDGE = 11.0, 6.0  # from the axes to the labels, and from there to the edge of the panel
BELOW, ABOVE = 12.0, 2.0  # how far labels may extend beyond the axes

STYLE = MappingProxyType({
    "font.size": 8, "axes.titlesize": 9, "axes.labelsize": 8,
    "xtick.labelsize": 6.5, "ytick.labelsize": 7, "text.parse_math": False,
    "axes.linewidth": 0.6, "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": True, "axes.axisbelow": True, "grid.linewidth": 0.3, "grid.color": "0.85",
    "lines.linewidth": 1.3, "lines.markersize": 3.6,
    "pdf.fonttype": 42, "svg.hashsalt": "attnbench",
})  # fmt: skip


class Ending(NamedTuple):
    """The label of a curve: its name, why it ends early, and where it ends."""

    name: str
    why: str
    at: tuple[float, float] | None
    colour: str

    @property
    def lines(self) -> int:
        """Lines of text that the label takes."""
        return 1 + (AT in self.name) + bool(self.why)


@contextmanager
def styled() -> Iterator[None]:
    """The context in which every figure is made and saved."""
    with matplotlib.rc_context(dict[Any, Any](STYLE)), warnings.catch_warnings():
        # names may use letters that the font lacks; they show as boxes
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield


def grid(rows: int, columns: int, height: float) -> tuple[Figure, Sequence[Axes]]:
    """Panels of a fixed size in inches, so that text has the same size in every figure."""
    width = PANEL[0]
    figure = Figure(figsize=(width * columns, height * rows), dpi=200)
    across = MARGINS["left"] + MARGINS["right"]
    down = MARGINS["top"] + MARGINS["bottom"]
    panels = figure.subplots(
        rows,
        columns,
        squeeze=False,
        gridspec_kw={
            "left": MARGINS["left"] / (width * columns),
            "right": 1 - MARGINS["right"] / (width * columns),
            "bottom": MARGINS["bottom"] / (height * rows),
            "top": 1 - MARGINS["top"] / (height * rows),
            "wspace": across / (width - across),
            "hspace": down / (height - down),
        },
    )
    return figure, list(panels.flat)


def room(endings: Sequence[Ending]) -> float:
    """The height of a panel, in inches, that has room for these labels."""
    lines = sum(ending.lines for ending in endings)
    return max(PANEL[1], lines * LINE / 72 + MARGINS["top"] + MARGINS["bottom"])


def heading(axes: Axes, title: str, label: str) -> None:
    """The title and, set horizontally below it, the label of the vertical axis."""
    position: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}
    axes.annotate(title, (0, 1), (-33, 17), **position, fontsize=9, fontweight="bold", va="center")
    axes.annotate(label, (0, 1), (-33, 7), **position, fontsize=7.5, va="center")


def length_axis(axes: Axes, lengths: Sequence[int]) -> None:
    """Lengths along the bottom: a tick for each of few, else for the powers of two."""
    whole = sorted(set(lengths))
    ticks = whole if len(whole) <= 12 else [n for n in whole if n & (n - 1) == 0] or whole
    length_ticks(axes, ticks)
    axes.set_xlim(min(whole) / 1.15, max(whole) * 1.15)
    axes.set_xlabel("sequence length, tokens")


def length_ticks(axes: Axes, lengths: Sequence[float]) -> None:
    """Ticks at these lengths alone: `128`, `1K`."""
    axes.xaxis.set_major_locator(FixedLocator(lengths))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda n, _: units.tick(round(n))))


def direct_labels(axes: Axes, endings: Sequence[Ending]) -> None:
    """The name of each curve to the right, as close to the height of its end as space allows.

    Positions are in points and in data, so every format looks alike. A curve of which nothing was
    drawn is named at the bottom, without a leader.
    """
    names = labels(ending.name for ending in endings)
    page, dpi = axes.figure.bbox, axes.figure.dpi
    width, height = 72 * page.width / dpi, 72 * page.height / dpi
    box = axes.get_position()
    left = box.x1 * width + GAP
    low, high = box.y0 * height - BELOW, box.y1 * height + ABOVE
    to_axes = axes.transData - axes.transAxes
    at = [(0.0, 0.0) if e.at is None else tuple(to_axes.transform(e.at)) for e in endings]
    wanted = [height * (box.y0 + min(max(y, 0.0), 1.0) * box.height) for _, y in at]
    centres = spread(wanted, [LINE * ending.lines for ending in endings], low, high)
    squeeze = min(1.0, (high - low) / (LINE * max(1, sum(e.lines for e in endings))))
    for ending, (x, _), centre in zip(endings, at, centres, strict=True):
        text = names[ending.name] + (f"\n{ending.why}" if ending.why else "")
        axes.annotate(
            text,
            xy=(left, centre) if ending.at is None else ending.at,
            xycoords="figure points" if ending.at is None else "data",
            xytext=(left, centre),
            textcoords="figure points",
            color=readable(ending.colour),
            fontsize=TYPE * min(squeeze, (MARGINS["right"] * 72 - GAP - EDGE) / _width(text)),
            linespacing=1.0,
            va="center",
            annotation_clip=False,
            # a long leader in the curve's colour would look like a measured line
            arrowprops=None if ending.at is None else _leader(ending.colour, near=x > 0.9),
        )


def _leader(colour: str, near: bool) -> dict[str, Any]:
    return {
        "arrowstyle": "-",
        "color": colour if near else "0.6",
        "linewidth": 0.5 if near else 0.3,
        "relpos": (0, 0.5),
        "shrinkA": 1,
        "shrinkB": 3,
    }


def _width(text: str) -> float:
    """The width in points of the longest line, in the font of labels."""
    font, measure = FontProperties(size=TYPE), TextToPath().get_text_width_height_descent
    return max(1.0, *(measure(line, font, ismath=False)[0] for line in text.split("\n")))


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
    figure.savefig(target, format=suffix, metadata=none[suffix])
    return target.getvalue()
