"""What figures share: panels of a fixed size, labels beside curves, bytes without dates."""

import io
import warnings
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from attnbench.render import units
from attnbench.render.labels import spread
from attnbench.render.looks import labels, readable

PANEL = (4.0, 2.8)  # inches; scaled to a column of a two-column page the text is 6 points
MARGINS = MappingProxyType({"left": 0.54, "right": 1.52, "bottom": 0.4, "top": 0.4})  # inches
LINE = 8.4  # points from one line of a label to the next

STYLE = MappingProxyType(
    {
        "font.size": 8,
        "axes.titlesize": 9,
        "axes.labelsize": 8,
        "xtick.labelsize": 6.5,
        "ytick.labelsize": 7,
        "axes.linewidth": 0.6,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "lines.linewidth": 1.3,
        "lines.markersize": 3.6,
        "pdf.fonttype": 42,
        "svg.hashsalt": "attnbench",
        "text.parse_math": False,
    }
)


class Ending(NamedTuple):
    """What stands beside the end of a curve: its name, why it ends, and where that is."""

    name: str
    why: str
    at: tuple[float, float] | None
    colour: str

    @property
    def lines(self) -> int:
        """Lines of text that the label takes."""
        return 1 + bool(self.why)


def styled() -> Any:
    """The context in which every figure is made."""
    return matplotlib.rc_context(dict[Any, Any](STYLE))


def grid(rows: int, columns: int, height: float) -> tuple[Figure, Sequence[Axes]]:
    """Panels of a fixed size in inches, so that text keeps its size whatever is drawn."""
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


def heading(axes: Axes, title: str, what: str) -> None:
    """The title and, lying flat where it can be read, what the vertical axis shows."""
    place: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}
    axes.annotate(title, (0, 1), (-33, 17), **place, fontsize=9, fontweight="bold", va="center")
    axes.annotate(what, (0, 1), (-33, 7), **place, fontsize=7.5, va="center")


def length_axis(axes: Axes, lengths: Sequence[int]) -> None:
    """Lengths along the bottom, each a tick while there is room for it."""
    whole = sorted(set(lengths))
    # odd lengths are ticks of their own while there is room for them
    ticks = whole if len(whole) <= 12 else [n for n in whole if n & (n - 1) == 0] or whole
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda n, _: units.tick(round(n))))
    axes.set_xlim(min(whole) / 1.15, max(whole) * 1.15)
    axes.set_xlabel("sequence length, tokens")


def direct_labels(axes: Axes, endings: Sequence[Ending]) -> None:
    """The name of each curve at the right, on the height of its end as nearly as room allows."""
    names = labels(ending.name for ending in endings)
    box = axes.get_window_extent()
    points = axes.figure.dpi / 72
    ends = [(ending, ending.at) for ending in endings]
    seen = [ending for ending, at in ends if at is not None]
    placed = [axes.transData.transform(at) for _, at in ends if at is not None]
    heights = [LINE * points * ending.lines for ending in seen]
    low, high = box.y0 - 12 * points, box.y1 + 8 * points
    centres = spread([float(at[1]) for at in placed], heights, low, high)
    for ending, at, centre in zip(seen, placed, centres, strict=True):
        # a long leader in the curve's own colour would pass for a measured line
        near = at[0] > box.x0 + 0.9 * box.width
        axes.annotate(
            names[ending.name] + (f"\n{ending.why}" if ending.why else ""),
            xy=tuple(at),
            xycoords="figure pixels",
            xytext=(box.x1 + 11 * points, centre),
            textcoords="figure pixels",
            color=readable(ending.colour),
            fontsize=7,
            linespacing=1.05,
            va="center",
            arrowprops={
                "arrowstyle": "-",
                "color": ending.colour if near else "0.6",
                "linewidth": 0.5 if near else 0.3,
                "relpos": (0, 0.5),
                "shrinkA": 1,
                "shrinkB": 3,
            },
        )
    unseen = [f"{names[e.name]}: {e.why}" for e in endings if e.at is None]
    if unseen:
        axes.text(0.02, 0.98, "\n".join(unseen), transform=axes.transAxes, va="top", fontsize=6.5)


def saved(figure: Figure, suffix: str) -> bytes:
    """The picture without dates, so that equal sweeps give equal bytes."""
    none = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
    target = io.BytesIO()
    with warnings.catch_warnings():
        # names may use letters that the font has not; they show as boxes
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.savefig(target, format=suffix, metadata=none[suffix])
    return target.getvalue()
