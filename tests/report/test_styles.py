"""Colours of series, as people with deuteranopia see them."""

from itertools import combinations

import numpy as np
import pytest

from attnbench.report.styles import MECHANISMS, on_dark, series_styles

# Machado, Oliveira and Fernandes (2009), severity 1.0, of linear red, green and blue
DEUTERANOPIA = np.array([
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.011820, 0.042940, 0.968881],
])  # fmt: skip
# linear red, green and blue to X, Y and Z (IEC 61966-2-1)
XYZ = np.array([
    [0.4124564, 0.3575761, 0.1804375],
    [0.2126729, 0.7151522, 0.0721750],
    [0.0193339, 0.1191920, 0.9503041],
])  # fmt: skip
APART = 10.0  # in CIELAB: four times what is just noticeable side by side


def lab(colour, seen=DEUTERANOPIA):
    """The colour in CIELAB, as it is seen."""
    levels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(levels <= 0.04045, levels / 12.92, ((levels + 0.055) / 1.055) ** 2.4)
    ratios = XYZ @ (seen @ linear).clip(0, 1) / XYZ.sum(axis=1)
    x, y, z = np.where(ratios > 216 / 24389, np.cbrt(ratios), (24389 / 27 * ratios + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def alike(styles, shown=str, marked=True):
    """The pairs of series that neither colour nor, if they are `marked`, marker and line tell."""
    for one, other in combinations(styles, 2):
        a, b = styles[one], styles[other]
        marks = [(style["marker"], style["markerfacecolor"]) for style in (a, b)]
        differ = marks[0] != marks[1] and a["linestyle"] != b["linestyle"]
        for seen in (DEUTERANOPIA, np.eye(3)):
            far = np.linalg.norm(lab(shown(a["color"]), seen) - lab(shown(b["color"]), seen))
            if far < APART and not (marked and differ):
                yield one, other, round(float(far), 1)


@pytest.mark.parametrize("shown", [str, on_dark], ids=["light", "dark"])
def test_the_mechanisms_of_fig_2_are_told_apart_by_colour_alone(shown):
    styles = series_styles(MECHANISMS[:7])
    assert [*alike(styles, shown, marked=False)] == []


def test_any_two_mechanisms_are_told_apart():
    styles = series_styles(MECHANISMS)
    assert [*alike(styles)] == []
    black = [name for name, style in styles.items() if style["color"] == "#000000"]
    assert black == ["transformer"]
