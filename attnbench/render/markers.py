"""The markers of figures as outlines for the charts of a page."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

ARM = 0.32  # half the width of the arms of a cross
THIN = 0.6  # the width of a thin diamond, relative to its height
ROUND = (32, 0.0, 1.0)  # a circle, and what is not listed

# corners, degrees of turn, and the inner radius of a star
OUTLINES: Mapping[str, tuple[int, float, float]] = MappingProxyType({
    "s": (4, 45, 1.0), "D": (4, 0, 1.0), "d": (4, 0, 1.0), "^": (3, 0, 1.0), "v": (3, 180, 1.0),
    "<": (3, -90, 1.0), ">": (3, 90, 1.0), "p": (5, 0, 1.0), "h": (6, 0, 1.0), "H": (6, 30, 1.0),
    "8": (8, 22.5, 1.0), "*": (5, 0, 0.45),
})  # fmt: skip


def marker_path(marker: str) -> str:
    """A marker of matplotlib as an SVG path within -1 to 1."""
    if marker in ("P", "X"):
        quarter = np.array([-ARM - 1j, ARM - 1j, ARM - ARM * 1j])
        corners, turn = np.concatenate([quarter * 1j**i for i in range(4)]), 45.0 * (marker == "X")
    else:
        count, turn, inner = OUTLINES.get(marker, ROUND)
        corners = -1j * np.exp(2j * np.pi * np.arange(count) / count)
        if inner < 1:
            between = inner * corners * np.exp(1j * np.pi / count)
            corners = np.stack([corners, between], 1).ravel()
    turned = corners * np.exp(1j * np.radians(turn))
    if marker == "d":
        turned = THIN * turned.real + 1j * turned.imag
    return f"M{'L'.join(f'{z.real:.3f},{z.imag:.3f}' for z in turned)}Z"
