"""What figures share: panels in rows, one legend, notes below them, files without dates.

The legend of a single row stands on the right, that of several rows below them in columns. All
distances are in units of the type size, so every size and format looks alike.
"""

import io
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from math import log
from types import MappingProxyType
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from attnbench import units
from attnbench.records import FigureSize
from attnbench.render.styles import SHEETS, Sheet, labels, readable, series_styles, shortened

DPI = 300  # of PNG
SMALLER, LARGER = 0.93, 1.13  # ticks and notes, and titles, relative to the type

# in units of the type size
AROUND = 4.6  # height of the title, tick labels and distances of a row of panels
LABEL = 1.6  # height of the label below the last row
BESIDE, SCALE = 16.0, 7.0  # widths of a typical legend on the right, and of a vertical scale
KEYS = 18.0  # least width of a column of a legend below
LETTER = 0.6  # a typical letter

# of series that stay in the background
GREY: Mapping[str, Any] = MappingProxyType({
    "color": "#B4B4B4", "markerfacecolor": "#B4B4B4", "markeredgecolor": "#B4B4B4", "marker": ".",
    "zorder": 1.5, "linestyle": "-",
})  # fmt: skip

WIDEST = 23  # letters in a line of the legend

# multiples of the powers of each base at which an axis may have ticks, from coarse to fine
MULTIPLES: Mapping[int, tuple[tuple[float, ...], ...]] = MappingProxyType({
    10: ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8),
         (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9)),
    2: ((1,), (1, 1.5), (1, 1.25, 1.5, 1.75)),
})  # fmt: skip
FEWEST, MOST = 4, 8  # ticks, where multiples allow it

STYLE = MappingProxyType({
    "text.parse_math": False, "axes.spines.top": False, "axes.spines.right": False,
    "axes.axisbelow": True, "axes.grid": True, "grid.color": "0.88",
    "axes.titlelocation": "left", "legend.frameon": False, "legend.handlelength": 2.4,
    "legend.handletextpad": 0.4, "legend.labelspacing": 0.25, "legend.borderpad": 0.2,
    "legend.columnspacing": 1.2, "figure.constrained_layout.use": True,
    "pdf.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "attnbench",
})  # fmt: skip


@contextmanager
def styled(sheet: Sheet = SHEETS[FigureSize.TEXT]) -> Iterator[None]:
    """The context in which every figure is made and saved."""
    size = sheet.type
    style: dict[Any, Any] = {
        **STYLE,
        "font.size": size,
        "axes.titlesize": LARGER * size,
        "axes.titlepad": 0.6 * size,
        "axes.linewidth": size / 12,
        "grid.linewidth": size / 24,
        "legend.fontsize": size,
        "figure.constrained_layout.w_pad": 0.4 * size / 72,
        "figure.constrained_layout.h_pad": 0.4 * size / 72,
    }
    for axis in ("xtick", "ytick"):
        style |= {f"{axis}.labelsize": SMALLER * size, f"{axis}.major.pad": size / 4}
        style |= {f"{axis}.major.size": size / 3, f"{axis}.minor.size": size / 3}
        style |= {f"{axis}.major.width": size / 12, f"{axis}.minor.width": size / 12}
    with matplotlib.rc_context(style), warnings.catch_warnings():
        # names may use letters that the font lacks; they show as boxes
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield


class PanelGrid:
    """Rows of panels on a sheet, each row with one vertical scale, and their legend.

    `styles` are those of the series that the panels show; those that are `faded` share one
    grey and one entry of the legend, and are named below.
    """

    def __init__(
        self,
        sheet: Sheet,
        series: Iterable[str],
        rows: int,
        columns: int,
        faded: frozenset[str] = frozenset(),
    ) -> None:
        self.sheet, self.faded = sheet, faded
        own = series_styles(series, sheet.type)
        self.styles = {name: {**own[name], **(GREY if name in faded else {})} for name in own}
        self.figure = Figure(figsize=(sheet.width, sheet.width), dpi=DPI)
        self.rows: list[list[Axes]] = [
            [*row] for row in self.figure.subplots(rows, columns, sharey="row", squeeze=False)
        ]

    def length_axis(
        self, axes: Axes, lengths: Iterable[int], label: str = "sequence length"
    ) -> None:
        """Lengths along the bottom of a panel, with a tick for each.

        The first and last have texts, and as many others as there is room for, the longest first.
        """
        whole = sorted(set(lengths))
        legend = BESIDE * (len(self.rows) == 1)
        room = (self.sheet.units - legend) / len(self.rows[0]) - SCALE
        room /= log(whole[-1] / whole[0]) or 1

        def apart(n: int, other: int) -> bool:
            letters = max(len(units.tick(n)), len(units.tick(other)))
            return room * abs(log(other / n)) > LETTER * letters + 0.8

        shown = [*dict.fromkeys((whole[0], whole[-1]))]
        for n in whole[::-1]:
            if all(apart(n, other) for other in shown):
                shown.append(n)
        axes.set_xscale("log", base=2)
        axes.set_xlim(whole[0] / 1.15, whole[-1] * 1.15)
        fixed_ticks(axes.xaxis, {n: units.tick(n) for n in shown})
        axes.xaxis.set_minor_locator(FixedLocator(whole))
        axes.xaxis.set_minor_formatter(NullFormatter())
        if axes in self.rows[-1]:
            short = any(units.tick(n).endswith("K") for n in whole)
            axes.set_xlabel(f"{label} (K = 1,024)" if short else label)

    def finished(self, legends: Sequence[Mapping[str, float]], notes: Iterable[str]) -> Figure:
        """The figure with its legend and notes, once its axes have scales and ticks.

        `legends` are the heights at which the curves of each row end, by series. Each series is
        named once, in the order of the first row that has it, from top to bottom.
        """
        figure, unit, beside = self.figure, self.sheet.type, len(legends) == 1
        ends = [sorted(legend, key=legend.__getitem__, reverse=True) for legend in legends]
        names = labels(chain.from_iterable(ends))
        texts = {name: folded(names[name]) for name in names if name not in self.faded}
        said = [*notes]
        if grey := [names[name].replace("\n", ", ") for name in names if name in self.faded]:
            texts[min(self.faded)] = f"{units.count(len(grey))} others"
            said.append(f"Grey, from top to bottom: {', '.join(grey)}.")
        legend = self._legend(texts, 1 if beside else int(self.sheet.units / KEYS))
        edge, keys = 0.4 * unit, _height(legend) + unit
        note = figure.text(
            edge / 72 / self.sheet.width, 0, " ".join(said),
            wrap=True, va="bottom", fontsize=SMALLER * unit, color="0.25",
        )  # fmt: skip
        note_height = (_height(note) + 1.5 * edge) if said else 0.0
        panels = unit * (len(self.rows) * (self.sheet.height + AROUND) + LABEL)
        below = note_height if beside else note_height + keys
        height = below + (max(panels, keys) if beside else panels)
        figure.set_size_inches(self.sheet.width, height / 72)
        figure.align_ylabels()
        note.set_y(edge / height)
        figure.set_layout_engine("constrained", rect=(0, below / height, 1, 1 - below / height))
        if not beside:
            legend.set_bbox_to_anchor((0, note_height / height), figure.transFigure)
        return figure

    def _legend(self, texts: Mapping[str, str], columns: int) -> Legend:
        """The keys of series with these texts; a single column stands on the right."""
        return self.figure.legend(
            [Line2D([], [], **self.styles[name]) for name in texts],
            [*texts.values()],
            labelcolor=[readable(self.styles[name]["color"]) for name in texts],
            loc="outside right upper" if columns == 1 else "lower left",
            ncols=columns,
        )


def _height(artist: Legend | Text) -> float:
    """Its height in points."""
    return float(72 * artist.get_window_extent().height / DPI)


def folded(label: str) -> str:
    """The lines of an entry: a wide label has form and options below the mechanism."""
    lines = label.split("\n")
    parts = (line.replace(" (", "\n(", 1) if len(line) > WIDEST else line for line in lines)
    return "\n".join(shortened(part, WIDEST) for line in parts for part in line.split("\n"))


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


def saved(figure: Figure, suffix: str) -> bytes:
    """The figure as a file without dates, so that equal sweeps give equal bytes."""
    none = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
    target = io.BytesIO()
    with styled():
        figure.savefig(target, format=suffix, metadata=none[suffix])
    return target.getvalue()
