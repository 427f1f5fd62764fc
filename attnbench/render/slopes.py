"""A panel of local exponents: d log time / d log N between neighbouring lengths, with its band."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter

from attnbench.analysis.summary import Frame
from attnbench.render.panels import Ending, direct_labels, heading, length_axis

SPAN = (-0.5, 3.0)  # a noisy slope may lie beyond; the band then leaves the panel
MARGIN = 0.25


def slope_panel(
    axes: Axes, slopes: Frame, mode: str, looks: Mapping[str, Mapping[str, Any]]
) -> None:
    """One curve per series, at the geometric mean of both lengths; cards are dashed lines."""
    axes.set_xscale("log", base=2)
    endings = [
        _drawn(axes, str(name), found, looks[str(name)])
        for name, found in slopes.groupby("series", sort=False)
    ]
    heading(axes, mode.capitalize(), "local exponent of N, time per sequence")
    known = slopes.dropna(subset="slope")
    if not len(known):
        axes.set_axis_off()
        axes.text(0.02, 0.9, "fewer than two lengths were timed", transform=axes.transAxes)
        return
    length_axis(axes, [int(n) for name in ("from_len", "to_len") for n in slopes[name]])
    expected = sorted(set(known["expected"].dropna()))
    reach = [*known["slope"].clip(*SPAN), *expected]
    axes.set_ylim(min(reach) - MARGIN, max(reach) + MARGIN)
    for power in expected:
        axes.axhline(power, color="0.45", linewidth=0.7, linestyle=(0, (4, 3)), zorder=1)
    low, high = axes.get_ylim()
    steps = {step / 2 for step in range(round(2 * low), round(2 * high) + 1)}
    axes.yaxis.set_major_locator(FixedLocator(sorted({*steps, *expected})))
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda y, _: f"card: {y:g}" if y in expected else f"{y:g}")
    )
    axes.set_ylim(low, high)
    axes.grid(which="major", linewidth=0.3, color="0.85")
    axes.set_axisbelow(True)
    direct_labels(axes, endings)


def _drawn(axes: Axes, name: str, rows: Frame, style: Mapping[str, Any]) -> Ending:
    middle = np.sqrt((rows["from_len"] * rows["to_len"]).to_numpy(float))
    slope, low, high = (rows[key].to_numpy(float) for key in ("slope", "low", "high"))
    axes.plot(middle, slope, **style, zorder=3)
    axes.fill_between(middle, low, high, color=style["color"], alpha=0.08, linewidth=0, zorder=2)
    known = np.flatnonzero(np.isfinite(slope))
    if not len(known):
        return Ending(name, "fewer than two lengths", None, style["color"])
    last = known[-1]
    return Ending(name, "", (middle[last], float(np.clip(slope[last], *SPAN))), style["color"])
