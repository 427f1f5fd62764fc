"""Colours, line styles, markers and labels: distinct, colour-blind safe, readable in print.

Loads no drawing library.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import groupby
from types import MappingProxyType
from typing import Any
from zlib import crc32

from attnbench.errors import clean
from attnbench.records import Name, selection

# after Okabe and Ito (2008), "Color Universal Design", without yellow, which is faint on white, and
# moved further apart for eyes with deuteranopia
HUES = ("#C14A00", "#000000", "#0A599D", "#40975F", "#BE75A1", "#EAA20F", "#53BCF9")
OWN = 2  # hues of the strongest alone, which later cycles leave out
SHADES = (0.0, 0.42, 0.6, 0.22)  # how far towards black in each cycle of hues
MARKERS = "osD^vPX<>ph*8dH"
# corners of a dagger, as text that is a marker would be set without mathematics
DAGGER = (
    *((-0.12, 1.0), (0.12, 1.0), (0.12, 0.52), (0.6, 0.52), (0.6, 0.24), (0.12, 0.24)),
    *((0.12, -1.0), (-0.12, -1.0), (-0.12, 0.24), (-0.6, 0.24), (-0.6, 0.52), (-0.12, 0.52)),
    (-0.12, 1.0),
)
FILLS = (0.0, 0.6, 0.3, 0.75, 0.45)  # how far towards white, inside the markers of each form
# solid, dashed, dash-dotted, then longer dashes; dotted is reserved for predictions
STROKES = ("-", (0, (5, 1.5)), (0, (6, 1.5, 1, 1.5)), (0, (9, 2)), (0, (9, 2, 2, 2, 2, 2)))

# The mechanisms as papers name them. The position here decides the style of a mechanism in every
# figure. The first seven, those of Fig. 2 of the Fastformer paper, have the pure hues and solid
# lines. A mechanism that is not listed, such as a user's own, gets a position from its name.
NAMES: Mapping[str, str] = MappingProxyType({
    "fastformer": "Fastformer", "transformer": "Transformer", "longformer": "Longformer",
    "linformer": "Linformer", "poolingformer": "Poolingformer", "bigbird": "Big Bird",
    "linear_transformer": "Linear Transformer", "adaptively_sparse": "Adaptively sparse",
    "axial": "Axial attention", "blockwise": "BlockBERT",
    "compressive_transformer": "Compressive Transformer", "etc": "ETC",
    "image_transformer": "Image Transformer", "local": "Local attention",
    "memory_compressed": "Memory-compressed", "nystromformer": "Nyströmformer",
    "performer": "Performer", "grouped_query": "Grouped-query", "latent": "Latent attention",
    "sliding_window": "Sliding-window", "retention": "RetNet",
    "gated_delta_net": "Gated DeltaNet", "reformer": "Reformer",
    "routing_transformer": "Routing Transformer", "set_transformer": "Set Transformer",
    "sinkhorn": "Sinkhorn", "smart_bird": "Smart Bird", "sparse_transformer": "Sparse Transformer",
    "star_transformer": "Star-Transformer", "synthesizer": "Synthesizer",
    "transformer_xl": "Transformer-XL", "fnet": "FNet", "mamba2": "Mamba-2",
    "kimi_delta": "Kimi delta",
    "gated_linear": "Gated linear", "lightning": "Lightning attention",
    "forgetting": "Forgetting attention", "differential": "Differential",
    "indexed": "Indexed attention", "moba": "MoBA", "native_sparse": "NSA",
    "rwkv7": "RWKV-7",
})  # fmt: skip
MECHANISMS = tuple(NAMES)
STRONGEST = MECHANISMS[:2]  # the two that every reader compares the others with
SUSPECT = "†"  # after the name of a series that is shown and not ranked
OWN_MARKERS = MARKERS[len(HUES) :]  # of mechanisms that are not listed
PERIOD = 300  # positions after which hue, shade, marker and line repeat together


def series_styles(
    series: Iterable[str], suspects: Collection[str] = ()
) -> dict[str, dict[str, Any]]:
    """The matplotlib style of each series, by name, in points.

    Colour, marker and first line style are those of the mechanism, the same in every figure:
    mechanisms of one cycle of hues differ in colour, those of others in marker and line too. The
    lines of the strongest are strong. Forms, options and sizes of a mechanism, sorted by name,
    differ in line style and in the shade inside the marker. A mechanism that is not listed has no
    marker of the first cycle, and the markers of `suspects` are daggers.
    """
    styles: dict[str, dict[str, Any]] = {}
    seen = Counter[str]()
    for name in sorted(set(series)):
        mechanism = mechanism_of(name)
        text = printed_name(mechanism).encode("utf-8", "replace")
        listed = mechanism in MECHANISMS
        at = MECHANISMS.index(mechanism) if listed else len(HUES) + crc32(text) % PERIOD
        cycle, place = divmod(at - OWN, len(HUES) - OWN) if at >= OWN else (0, at - OWN)
        colour = tinted(HUES[OWN + place], SHADES[cycle % len(SHADES)], 0.0)
        i = seen[mechanism]
        strong = mechanism in STRONGEST
        markers = MARKERS if listed else OWN_MARKERS
        marker = DAGGER if name in suspects else markers[at % len(markers)]
        seen[mechanism] += 1
        styles[name] = {
            "color": colour,
            "marker": marker,
            "linestyle": STROKES[(cycle + i) % len(STROKES)],
            "markerfacecolor": tinted(colour, FILLS[i % len(FILLS)]),
            "markeredgecolor": colour,
            "linewidth": 1.5 if strong else 0.9,
            "markersize": 5.0 if name in suspects else 4.0 if strong else 3.2,
            "markeredgewidth": 0.7,
            "zorder": 4.0 if strong else 3.0,
        }
    return styles


def mechanism_of(series: str) -> str:
    """The mechanism of a series, without form, options and sizes; `x.py:NAME` is one."""
    return Name.read(series).mechanism


def printed_name(mechanism: str) -> str:
    """The mechanism as papers name it, or the name of the class in a user's own file.

    Of a stack, its layers: `3 × Gated DeltaNet + Grouped-query`.
    """
    if stacked := selection.layers(mechanism):
        names = groupby(printed_name(layer.name) for layer in stacked)
        runs = [(len([*same]), name) for name, same in names]
        return " + ".join(f"{times} × {name}" if times > 1 else name for times, name in runs)
    return NAMES.get(mechanism) or mechanism.rpartition(".py:")[2]


def on_dark(colour: str) -> str:
    """The colour on a dark page, where all have a contrast of 4 to 1; black is almost white."""
    return "#E6E6E3" if colour == "#000000" else tinted(colour, 0.4)


def labels(names: Iterable[str], suspects: Collection[str] = ()) -> dict[str, str]:
    """The label of each series: the mechanism as papers name it, and what else makes it unique.

    Form and options are added where they distinguish series: `Transformer (sdpa) D=64`. The labels
    of `suspects` end in a dagger.
    """
    texts = {name: _candidates(name) for name in names}
    uses = [Counter(column) for column in zip(*texts.values(), strict=True)]
    return {
        name: next(
            (text for text, n in zip(candidates, uses, strict=True) if n[text] == 1), candidates[-1]
        )
        + (f" {SUSPECT}" if name in suspects else "")
        for name, candidates in texts.items()
    }


def _candidates(series: str) -> list[str]:
    """The label of a series alone, with its form, its options, both, and as the tables have it."""
    parts = Name.read(series)
    name = printed_name(parts.mechanism)
    options = parts.options.replace(",", ", ")
    further = ((), (parts.form,), (options,), (parts.form, options))
    marks = [", ".join(filter(None, more)) for more in further]
    texts = [*(f"{name} ({more})" if more else name for more in marks), parts.plain]
    return [" ".join(filter(None, (clean(text), parts.sizes))) for text in texts]


def tinted(colour: str, amount: float, target: float = 1.0) -> str:
    """The colour moved towards white, or towards black with a target of 0."""
    levels = (int(colour[i : i + 2], 16) * (1 - amount) + 255 * amount * target for i in (1, 3, 5))
    return "#" + "".join(f"{round(level):02X}" for level in levels)
