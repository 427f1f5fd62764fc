"""Colours, line styles and markers of curves: distinct, colour-blind safe, readable in print."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any
from zlib import crc32

import numpy as np

from attnbench.analysis.devices import AT
from attnbench.render.grid import clean

# Okabe and Ito (2008), "Color Universal Design", without yellow, which is faint on white
HUES = ("#D55E00", "#000000", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
# target and share of each further cycle of hues: darker, lighter, then darker still
SHADES = ((0.0, 0.0), (0.0, 0.4), (1.0, 0.45), (0.0, 0.65))
MARKERS = "osD^vPX<>ph*8dH"
# solid, dashed, dash-dotted, then longer dashes; dotted is reserved for predictions
STROKES = ("-", (0, (5, 1.5)), (0, (6, 1.5, 1, 1.5)), (0, (9, 2)), (0, (9, 2, 2, 2, 2, 2)))

# The position here decides the style of a mechanism in every figure. The first seven, those of
# Fig. 2 of the Fastformer paper, have the pure hues. A mechanism that is not listed, such as a
# user's own, gets a position derived from its name.
MECHANISMS = (
    "fastformer", "transformer", "longformer", "linformer", "poolingformer", "bigbird",
    "linear_transformer", "adaptively_sparse", "axial", "blockwise", "compressive_transformer",
    "etc", "image_transformer", "local", "memory_compressed", "nystromformer", "performer",
    "reformer", "routing_transformer", "set_transformer", "sinkhorn", "smart_bird",
    "sparse_transformer", "star_transformer", "synthesizer", "transformer_xl", "fnet",
    "gated_delta_net", "grouped_query", "latent", "mamba2", "retention", "sliding_window",
)  # fmt: skip
PERIOD = 105  # positions after which hue and marker repeat together

BRIGHT = 0.2  # luminance above which colours on a dark page have a contrast of 4 to 1
DARK = 0.16  # luminance below which text on white has a contrast of 5 to 1
LONGEST = 24  # characters of a label


def series_styles(series: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The matplotlib style of each series, by name.

    Colour and marker are those of the mechanism; its forms, options and devices differ in line
    style, in the order given.
    """
    styles: dict[str, dict[str, Any]] = {}
    seen: Counter[str] = Counter()
    for name in dict.fromkeys(series):
        mechanism = re.split(rf"[:\[]|{AT}", name, maxsplit=1)[0]
        stroke = STROKES[seen[mechanism] % len(STROKES)]
        styles[name] = mechanism_style(mechanism) | {"linestyle": stroke}
        seen[mechanism] += 1
    return styles


def mechanism_style(mechanism: str) -> dict[str, Any]:
    """Colour and marker of a mechanism, the same in every figure."""
    listed = mechanism in MECHANISMS
    i = MECHANISMS.index(mechanism) if listed else crc32(mechanism.encode("utf-8", "replace"))
    target, amount = SHADES[i % PERIOD // len(HUES) % len(SHADES)]
    hue = _levels(HUES[i % len(HUES)])
    # black has no darker shade: its further cycles are greys
    target = target if hue.any() else 1.0
    colour = _hex(hue * (1 - amount) + target * amount)
    marker = MARKERS[i % len(MARKERS)]
    return {"color": colour, "marker": marker, "markeredgecolor": colour}


def readable(colour: str) -> str:
    """The colour, darkened as far as text on white needs."""
    levels = _levels(colour)
    return _hex(levels * min(1.0, (DARK / max(_luminance(levels), 1e-9)) ** (1 / 2.2)))


def on_dark(colour: str) -> str:
    """The colour, lightened as far as a dark page needs; greys change places with light ones."""
    levels = _levels(colour)
    if np.ptp(levels) == 0:
        levels = 0.92 - 0.6 * levels
    while _luminance(levels) < BRIGHT:
        levels = levels + 0.05 * (1 - levels)
    return _hex(levels)


def labels(names: Iterable[str]) -> dict[str, str]:
    """The label of each series: without options where it is unique without them.

    The device, if it is part of the name, stands on a second line.
    """
    parts = {name: name.partition(AT)[::2] for name in names}
    bare = {name: (series.partition("[")[0], device) for name, (series, device) in parts.items()}
    uses = Counter(bare.values())
    return {
        name: "\n".join(
            map(shortened, filter(None, bare[name] if uses[bare[name]] == 1 else whole))
        )
        for name, whole in parts.items()
    }


def shortened(name: str) -> str:
    """A name short enough for a label: the middle of a long one is left out."""
    text = clean(name)
    half = LONGEST // 2
    return text if len(text) <= LONGEST else f"{text[:half]}…{text[1 - half :]}"


def _luminance(levels: np.ndarray) -> float:
    """Relative luminance as in the Web Content Accessibility Guidelines 2.1."""
    linear = np.where(levels <= 0.04045, levels / 12.92, ((levels + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))


def _levels(colour: str) -> np.ndarray:
    """Red, green and blue from 0 to 1."""
    return np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])


def _hex(levels: np.ndarray) -> str:
    return "#" + "".join(f"{round(255 * level):02X}" for level in levels)
