"""What figures share: their size, ticks, the legend and notes, and files without dates."""

import io
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import log2
from textwrap import fill
from types import MappingProxyType
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from attnbench import units

# The narrowest text width of the usual one-column styles (NeurIPS), in inches: no style has to
# shrink a figure below its type size.
WIDTH = 5.5
DPI = 300  # of PNG

# in points
TYPE, SMALL = 7.0, 6.5  # labels; ticks and notes
PANEL, AROUND = 130.0, 43.0  # heights of axes, and of title, ticks and label
BESIDE, SCALE = 112.0, 49.0  # widths of a typical legend, and of a vertical scale
LETTER, APART = 4.2, 5.6  # width of a letter of a tick, and least distance of two ticks
EDGE = 3.0
WIDEST = 23  # letters in a line of the legend

# multiples of the powers of each base at which an axis may have ticks, from coarse to fine
MULTIPLES: Mapping[int, tuple[tuple[float, ...], ...]] = MappingProxyType({
    10: ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8),
         (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9)),
    2: ((1,), (1, 1.5), (1, 1.25, 1.5, 1.75)),
})  # fmt: skip
FEWEST, MOST = 4, 8  # ticks, where multiples allow it

STYLE: Mapping[Any, Any] = MappingProxyType({
    "font.size": TYPE, "text.parse_math": False, "legend.fontsize": TYPE,
    "axes.titlesize": TYPE + 1, "axes.titlelocation": "left", "axes.linewidth": 0.6,
    "axes.spines.top": False, "axes.spines.right": False,
    "axes.axisbelow": True, "axes.grid": True, "grid.color": "0.88", "grid.linewidth": 0.3,
    "xtick.labelsize": SMALL, "ytick.labelsize": SMALL,
    "xtick.major.size": 2.3, "xtick.minor.size": 2.3, "ytick.major.size": 2.3,
    "legend.frameon": False, "legend.labelspacing": 0.25, "legend.borderpad": 0.2,
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.w_pad": EDGE / 72, "figure.constrained_layout.h_pad": EDGE / 72,
    "pdf.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "attnbench",
})  # fmt: skip


@contextmanager
def styled() -> Iterator[None]:
    """The context in which every figure is made and saved."""
    with matplotlib.rc_context({**STYLE}), warnings.catch_warnings():
        # names may use letters that the font lacks; they show as boxes
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield


def length_axis(axes: Axes, lengths: Iterable[int], columns: int) -> None:
    """Lengths along the bottom of one of so many panels side by side, with a tick for each.

    The last and first have texts, and as many others as there is room for, the longest first.
    """
    whole = sorted(set(lengths))
    width = (72 * WIDTH - BESIDE) / columns - SCALE
    octave = width / (log2(whole[-1] / whole[0]) or 1)

    def apart(n: int, other: int) -> bool:
        letters = max(len(units.tick(n)), len(units.tick(other)))
        return octave * abs(log2(n / other)) > LETTER * letters + APART

    shown = [*dict.fromkeys((whole[-1], whole[0]))]
    for n in whole[::-1]:
        if all(apart(n, other) for other in shown):
            shown.append(n)
    axes.set_xscale("log", base=2)
    axes.set_xlim(whole[0] / 1.15, whole[-1] * 1.15)
    fixed_ticks(axes.xaxis, {n: units.tick(n) for n in shown})
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


def lay_out(figure: Figure, keys: Mapping[str, Mapping[str, Any]], notes: Iterable[str]) -> None:
    """Add a legend of `keys`, styles of lines by their texts, and notes, and make room for both.

    The axes have scales and ticks.
    """
    legend = figure.legend(
        [Line2D([], [], **style) for style in keys.values()],
        [fill(text, WIDEST) for text in keys],
        loc="outside right upper",
    )
    place, text = EDGE / 72 / WIDTH, " ".join(notes)
    note = figure.text(place, 0, text, wrap=True, va="bottom", fontsize=SMALL, color="0.25")
    beside, below = (72 * each.get_window_extent().height / DPI for each in (legend, note))
    below = (below + 1.5 * EDGE) if text else 0.0
    height = below + max(PANEL + AROUND, beside + TYPE)
    figure.set_figheight(height / 72)
    note.set_y(EDGE / height)
    figure.set_layout_engine("constrained", rect=(0, below / height, 1, 1 - below / height))


def saved(figure: Figure, suffix: str) -> bytes:
    """The figure as a file without dates, so that equal sweeps give equal bytes."""
    none = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
    target = io.BytesIO()
    with styled():
        figure.savefig(target, format=suffix, metadata=none[suffix])
    return target.getvalue()
