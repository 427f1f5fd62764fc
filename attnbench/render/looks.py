"""Colours, strokes and markers of curves: distinct, colour-blind safe, readable in print."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from attnbench.render.grid import clean

# Okabe and Ito (2008), "Color Universal Design", without its yellow, which white paper swallows
HUES = ("#D55E00", "#000000", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
# once all hues are taken they come again darker, then lighter, with other strokes
SHADES = ((0.0, 0.0, "-"), (0.0, 0.4, (0, (5, 1.5))), (1.0, 0.45, (0, (6, 1.5, 1, 1.5))))
MARKERS = "osD^vPX<>ph*8dH"

DARK = 0.16  # luminance below which text on white has a contrast of 5 to 1
LONGEST = 24  # characters of a label


def look(index: int) -> dict[str, Any]:
    """What matplotlib draws a series with, distinct for the first 21."""
    target, amount, stroke = SHADES[index // len(HUES) % len(SHADES)]
    hue = _levels(HUES[index % len(HUES)])
    # black has no darker shade: its second and third are greys
    target = target if hue.any() else 1.0
    colour = _hex(hue * (1 - amount) + target * amount)
    marker = MARKERS[index % len(MARKERS)]
    return {"color": colour, "linestyle": stroke, "marker": marker, "markeredgecolor": colour}


def readable(colour: str) -> str:
    """The colour, darkened as far as text on white paper needs."""
    levels = _levels(colour)
    # relative luminance as in the Web Content Accessibility Guidelines 2.1
    linear = np.where(levels <= 0.04045, levels / 12.92, ((levels + 0.055) / 1.055) ** 2.4)
    luminance = float(linear @ (0.2126, 0.7152, 0.0722))
    return _hex(levels * min(1.0, (DARK / max(luminance, 1e-9)) ** (1 / 2.2)))


def labels(names: Iterable[str]) -> dict[str, str]:
    """What each series is called beside its curve: without its options if that is one alone."""
    bare = {name: name.partition("[")[0] for name in names}
    found = Counter(bare.values())
    return {name: shortened(b if found[b] == 1 else name) for name, b in bare.items()}


def shortened(name: str) -> str:
    """A name short enough for a label, its middle left out."""
    text = clean(name)
    half = LONGEST // 2
    return text if len(text) <= LONGEST else f"{text[:half]}…{text[1 - half :]}"


def _levels(colour: str) -> np.ndarray:
    """Red, green and blue from 0 to 1."""
    return np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])


def _hex(levels: np.ndarray) -> str:
    return "#" + "".join(f"{round(255 * level):02X}" for level in levels)
