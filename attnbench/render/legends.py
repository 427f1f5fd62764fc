"""The entries of a figure's legend: their texts and their places."""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from statistics import fmean
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextToPath

from attnbench.render.styles import shortened

WIDEST = 13.0  # of a line, in units of the type size


class Ending(NamedTuple):
    """An entry of a legend: a series, its style, where its curve ends, and what is to be added."""

    name: str
    style: Mapping[str, Any]
    at: tuple[float, float] | None
    why: str = ""


def ends_of(axes: Axes, legend: Sequence[Ending]) -> list[tuple[float, float]]:
    """Where curves end, in units of the axes; below them without an end."""
    to_axes = axes.transData - axes.transAxes
    return [(0.0, -1.0) if e.at is None else tuple(to_axes.transform(e.at)) for e in legend]


def entry_text(ending: Ending, names: Mapping[str, str]) -> str:
    """The lines of an entry, shortened to `WIDEST`; `names` are the labels of all series."""
    lines = (names[ending.name] + (f"\n{ending.why}" if ending.why else "")).split("\n")
    return "\n".join(map(_fitted, lines))


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
    """Lines of whole words that are at most `width` points wide."""
    lines: list[str] = []
    for word in text.split():
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
