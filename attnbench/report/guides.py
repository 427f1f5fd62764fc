"""Grey lines in figures that show how steep a cost is that grows with a power of the length."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnbench.analysis import Frame
from attnbench.records import PASSES

TEXTS: Mapping[int, str] = MappingProxyType({1: "∝ N", 2: "∝ N²"})  # by the power
GREY = "0.55"
FINE = 200  # points of a line
# shares of the height of a panel
BELOW = 0.14  # added below the curves
START = 0.08  # where the lines begin
# of what is seen of a line, the share where its text may stand: no two texts meet
LABELLED = MappingProxyType({1: (0.75, 0.9), 2: (0.3, 0.7)})


def powers(mode: str) -> tuple[int, ...]:
    """The powers of N that are drawn in a mode: a step of decoding takes at most N."""
    return (1, 2) if mode in PASSES else (1,)


def with_room(low: float, high: float) -> tuple[float, float]:
    """The ends of a vertical axis with room for guides below the curves."""
    return low * (low / high) ** BELOW, high


def draw_guides(axes: Any, points: Frame, width: float, size: float) -> None:
    """Draw a line for each power of N into a panel, with its text on it.

    The cost of one sequence grows with the power. What the axis counts is that of `sequences`,
    which become fewer as they become longer where the number of tokens is constant.

    axes: has the ends of its vertical axis
    points: of `figures.points`, in one mode, of at least two lengths
    width: of lines, in points
    size: of type, in points
    """
    sequences = points.groupby("seq_len")["sequences"].first()
    shortest = float(np.log(sequences.index.min()))
    longest = float(np.log(sequences.index.max()))
    lengths = np.linspace(shortest, longest, FINE)
    counts = np.interp(lengths, np.log(sequences.index), np.log(sequences))
    low, high = np.log(axes.get_ylim())
    for power in powers(str(points["mode"].iloc[0])):
        growth = power * lengths + counts
        heights = low + START * (high - low) + growth - growth[0]
        seen = heights <= high
        x = np.exp(lengths[seen])
        y = np.exp(heights[seen])
        axes.plot(x, y, color=GREY, linewidth=width, zorder=1.5)
        first, last = (int(share * (len(x) - 1)) for share in LABELLED[power])
        at = first + int(np.argmax(_clearance(points, x, y)[first : last + 1]))
        axes.text(
            x[at], y[at], TEXTS[power], color="0.35", fontsize=size, ha="center", va="center",
            zorder=1.6, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
        )  # fmt: skip


def _clearance(
    points: Frame, x: NDArray[np.float64], y: NDArray[np.float64]
) -> NDArray[np.float64]:
    """How far each point of a line is from the nearest curve, as the logarithm of a factor."""
    apart = np.full(len(x), np.inf)
    for _, curve in points[points["height"] > 0].groupby("series"):
        heights = np.interp(np.log(x), np.log(curve["seq_len"]), np.log(curve["height"]))
        apart = np.minimum(apart, abs(np.log(y) - heights))
    return apart


def slopes(points: Frame) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """By mode and text: lengths, and by what factor a cost of this slope grows from the first.

    points: of `figures.points`, whose axis counts the cost of `sequences`; a mode of one length has
        no slope
    """
    found = {}
    for mode, own in points.groupby("mode", sort=False):
        counts = own.groupby("seq_len")["sequences"].first()
        if len(counts) > 1:
            of_first = counts / counts.iloc[0]
            longer = counts.index / counts.index[0]
            found[str(mode)] = {
                TEXTS[power]: [*zip(counts.index.tolist(), of_first * longer**power, strict=True)]
                for power in powers(str(mode))
            }
    return found


def slopes_note(modes: Sequence[str]) -> str:
    """What the grey lines of a figure are, with panels of these modes."""
    drawn = sorted({power for mode in modes for power in powers(mode)})
    lines = " and ".join(TEXTS[power] for power in drawn)
    return f"Grey: costs of a sequence {lines}. " if drawn else ""
