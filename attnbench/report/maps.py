"""Who is cheaper than the baseline, at which length: the figure of sweeps of many series.

Curves of dozens of series hide one another. Here each series is a row, each length a column, and a
cell says how many times as fast as the baseline the series is, in a colour between two.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, log2
from types import MappingProxyType
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from attnbench.analysis import Analysis
from attnbench.records import PASSES, metrics, units
from attnbench.records.modes import find
from attnbench.report.cost_tables import per_layer, timed_by
from attnbench.report.figures import DPI, EDGE, PAGE, fixed_ticks, points, styled
from attnbench.report.names import baseline_label
from attnbench.report.sizes import Layout
from attnbench.report.styles import HUES, SUSPECT, labels, tinted

MANY = 12  # series up to which curves can be told apart, and no map is drawn
FASTER = HUES[2]
SLOWER = HUES[0]
FULL = 5.0  # the binary logarithm of a ratio from which on colours are full
DARK = 0.8  # share of the full colour from which on texts are white
LINE = 1.55  # height of a row, in sizes of its type
HEAD = 3.6  # height of what stands above the rows, and below
CELL = 3.2  # least width of a cell, in sizes of its type
LETTER = 0.6  # width of a letter of the name of a row
UNKNOWN = "–"
CAUSAL = "→"  # behind the name of a row that sees no later tokens, beside others that do


class MapCell(NamedTuple):
    """One cell of a map.

    ratio: how many times as fast as the baseline; NaN where it is not known.
    is_tie: whether its 95 % interval contains 1.
    reason: why it is predicted or not known; empty where it was measured.
    """

    ratio: float
    is_tie: bool
    reason: str

    @property
    def text(self) -> str:
        """The ratio in two digits."""
        return UNKNOWN if isnan(self.ratio) else units.plain(self.ratio, 2)


@dataclass(frozen=True)
class MapKind:
    """What a map compares.

    metric: its key in the table of metrics; the less, the better.
    caption: of the figure.
    says: what a number says of a row, before and after the name of the baseline.
    better: what blue cells are; orange ones are the opposite.
    passes: whether it is of modes that pass over a sequence; None: of all modes.
    """

    metric: str
    caption: str
    says: tuple[str, str]
    better: tuple[str, str]
    passes: bool | None = None


# by the stem of the figure's file
KINDS: Mapping[str, MapKind] = MappingProxyType({
    "map": MapKind(
        metrics.TIME, "Speed of each series beside one of them, by length",
        ("how many times as fast as ", " a row is"), ("faster", "slower"),
    ),
    "map_memory": MapKind(
        metrics.MEMORY, "Peak memory of each series beside one of them, by length",
        ("how many times as large the peak memory of ", " is as that of a row"),
        ("less memory", "more"), True,
    ),
    "map_state": MapKind(
        metrics.STATE, "Size of the state of each series beside one of them, by length",
        ("how many times as large the state of ", " is as that of a row"),
        ("a smaller state", "a larger one"), False,
    ),
})  # fmt: skip


def maps(analysis: Analysis) -> Mapping[str, MapKind]:
    """The maps of a sweep, by stem: none unless it has more series than curves can show."""
    cases = analysis.cases
    if cases["series"].nunique() <= MANY:
        return {}
    return {
        stem: kind
        for stem, kind in KINDS.items()
        if any(cases.loc[cases["mode"] == mode, kind.metric].notna().sum() > 1
               for mode in _modes(analysis, kind))
    }  # fmt: skip


def _modes(analysis: Analysis, kind: MapKind) -> list[str]:
    """The modes whose panels a map has."""
    return [mode for mode in analysis.modes if kind.passes in (None, mode in PASSES)]


def map_figure(analysis: Analysis, stem: str, layout: Layout = PAGE) -> Figure:
    """Ratios to the baseline, a panel for each mode, a row for each series.

    The rows are in the order of what was measured or predicted at the longest length of the last
    mode, the cheapest first.

    analysis: of the sweep.
    stem: of `KINDS`.
    layout: the place that the figure is made for.
    """
    kind = KINDS[stem]
    squares = {mode: _squares(analysis, mode, kind) for mode in _modes(analysis, kind)}
    rows = _order(analysis, squares)
    causal = causal_series(analysis, list(squares))
    names = {
        name: f"{label} {CAUSAL}" if name in causal else label
        for name, label in labels(rows, analysis.suspects).items()
    }
    stacked, step = _arrangement(analysis, list(squares), names.values(), layout)
    shape = (len(squares), 1) if stacked else (1, len(squares))
    lines = shape[0] * (LINE * len(rows) + HEAD)
    with styled(layout):
        figure = Figure(figsize=(layout.width, lines * layout.small / 72), dpi=DPI)
        grid = figure.subplots(*shape, squeeze=False).flat
        for i, (axes, (mode, of_mode)) in enumerate(zip(grid, squares.items(), strict=True)):
            axes.set_title(find(mode).title)
            _draw(axes, rows, _lengths(analysis, mode)[::-step][::-1], of_mode, layout)
            shown = names if i == 0 or stacked else dict.fromkeys(rows, "")
            fixed_ticks(axes.yaxis, {at: shown[name] for at, name in enumerate(rows)})
        note = figure.supxlabel(
            _note(analysis, kind, squares, step), x=EDGE / 72 / layout.width, ha="left", wrap=True,
            fontsize=layout.small, color="0.25",
        )  # fmt: skip
        below = note.get_window_extent().height / DPI
        figure.set_figheight(lines * layout.small / 72 + below)
    return figure


def _lengths(analysis: Analysis, mode: str) -> list[int]:
    """The lengths of a mode, from short to long."""
    cases = analysis.cases
    return sorted(set(map(int, cases.loc[cases["mode"] == mode, "seq_len"])))


def causal_series(analysis: Analysis, modes: Sequence[str]) -> set[str]:
    """The series of passes whose tokens see no later ones, where those of other series do."""
    cases = analysis.cases[analysis.cases["mode"].isin([m for m in modes if m in PASSES])]
    sees_earlier = {*cases.loc[cases["causal"].astype(bool), "series"]}
    sees_all = {*cases.loc[~cases["causal"].astype(bool), "series"]}
    return sees_earlier - sees_all if sees_all else set()


def _arrangement(
    analysis: Analysis, modes: Sequence[str], names: Iterable[str], layout: Layout
) -> tuple[bool, int]:
    """Whether panels stand one above the other, and of how many lengths each shows one.

    As many lengths as there is room for, in cells of `CELL`.

    analysis: of the sweep.
    modes: of the panels.
    names: of the rows.
    layout: the place that the figure is made for.
    """
    most = max(len(_lengths(analysis, mode)) for mode in modes)
    room = 72 * layout.width / layout.small - LETTER * max(map(len, names))
    fitting = max(1, int(room / CELL))
    stacked = layout.stacked or most * len(modes) > fitting
    return stacked, -(-most // fitting)


def _squares(analysis: Analysis, mode: str, kind: MapKind) -> Mapping[tuple[str, int], MapCell]:
    """The cell of each series and length of a mode that its sweep has."""
    cases = analysis.cases[analysis.cases["mode"] == mode]
    bases = analysis.baselines_by_mode[mode]
    drawn = points(cases, metrics.TABLE[kind.metric], cases["batch_scale"]).assign(
        sizes=cases["sizes"]
    )
    base = drawn[drawn["series"].isin(bases)].set_index(["sizes", "seq_len"])
    ties = _ties(analysis, mode) if kind.metric == metrics.TIME else {}
    squares = {}
    for _, point in drawn.iterrows():
        key = (str(point["series"]), int(point["seq_len"]))
        at = (point["sizes"], point["seq_len"])
        if key in ties:
            squares[key] = ties[key]
        elif at in base.index:
            squares[key] = _of_points(point, base.loc[at])
        else:
            squares[key] = MapCell(float("nan"), False, point["reason"])
    return squares


def _ties(analysis: Analysis, mode: str) -> Mapping[tuple[str, int], MapCell]:
    """The cells of series that were timed beside the baseline, from their ratios in turns."""
    speedups = analysis.speedups
    if speedups is None:
        return {}
    rows = speedups[speedups["mode"] == mode]
    keys = zip(map(str, rows["series"]), map(int, rows["seq_len"]), strict=True)
    values = rows[["ratio", "low", "high"]].to_numpy(float)
    return {
        key: MapCell(float(ratio), bool(low <= 1 <= high), "")
        for key, (ratio, low, high) in zip(keys, values, strict=True)
    }


def _of_points(point: pd.Series, base: pd.Series) -> MapCell:
    """The cell of a series from what it and the `base` cost; each may lack a measurement."""
    if point["missed"] or base["missed"]:
        return MapCell(float("nan"), False, "peaks that miss memory")
    lacking = [each["reason"] for each in (point, base) if isnan(each["value"])]
    return MapCell(float(base["height"] / point["height"]), False, next(iter(lacking), ""))


def _order(
    analysis: Analysis, squares: Mapping[str, Mapping[tuple[str, int], MapCell]]
) -> list[str]:
    """The series from fast to slow, at the longest length of the last mode that has each.

    Suspect ones stand last.
    """
    ratios: dict[str, float] = {}
    for of_mode in squares.values():
        for (series, _), square in sorted(of_mode.items(), key=lambda item: item[0][1]):
            if not isnan(square.ratio):
                ratios[series] = square.ratio
    every = dict.fromkeys(map(str, analysis.cases["series"]))
    return sorted(every, key=lambda name: (name in analysis.suspects, -ratios.get(name, 0.0)))


def _draw(
    axes: Axes,
    rows: Sequence[str],
    lengths: Sequence[int],
    squares: Mapping[tuple[str, int], MapCell],
    layout: Layout,
) -> None:
    """The cells of one panel, each with its colour and text.

    axes: of the panel.
    rows: the series from top to bottom.
    lengths: the columns from left to right.
    squares: the cell of each series and length.
    layout: the place that the figure is made for.
    """
    axes.set_xlim(-0.5, len(lengths) - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(visible=False)
    axes.tick_params(length=0, top=False, labeltop=True, labelbottom=False)
    axes.spines[:].set_visible(False)
    fixed_ticks(axes.xaxis, {at: units.tick(n) for at, n in enumerate(lengths)})
    for y, name in enumerate(rows):
        for x, n in enumerate(lengths):
            square = squares.get((name, n))
            if square is None:
                continue
            colour, ink = _colours(square)
            box = Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor="white")
            box.set_linewidth(0.6 * layout.scale)
            axes.add_patch(box)
            text = axes.text(
                x, y, square.text, ha="center", va="center_baseline", color=ink,
                fontsize=layout.small, style="italic" if square.reason else "normal",
                weight="bold" if square.is_tie else "normal",
            )  # fmt: skip
            text.set_in_layout(False)


def _colours(square: MapCell) -> tuple[str, str]:
    """The colour of a cell and of its text; predictions have none."""
    if square.reason or isnan(square.ratio):
        return "#FFFFFF", "#707070"
    share = min(1.0, abs(log2(square.ratio)) / FULL)
    hue = FASTER if square.ratio > 1 else SLOWER
    return tinted(hue, 1 - share), "#FFFFFF" if share > DARK else "#000000"


def _note(
    analysis: Analysis,
    kind: MapKind,
    squares: Mapping[str, Mapping[tuple[str, int], MapCell]],
    step: int,
) -> str:
    """What numbers, colours and slanted texts are, as far as the map has them.

    analysis: of the sweep.
    kind: what the map compares.
    squares: the cells of each mode.
    step: of how many lengths one is shown.
    """
    cases = analysis.cases
    every = [square for of_mode in squares.values() for square in of_mode.values()]
    clock = timed_by(cases)
    texts = []
    if kind.metric == metrics.TIME and clock != "time":
        texts.append(f"{units.capitalised(clock)}{per_layer(cases)}.")
    full = units.count(int(2**FULL))
    texts.append(
        f"A number says {_base(analysis, [*squares]).join(kind.says)} at this length (K = 1,024):"
        f" blue is {kind.better[0]}, orange {kind.better[1]}; colours are full from {full} times"
        " on."
    )
    if any(square.is_tie for square in every):
        texts.append("Bold: the 95 % interval contains 1.")
    speedups = analysis.speedups
    if kind.metric == metrics.TIME and speedups is not None and speedups["low"].isna().any():
        texts.append("What was measured in a single round has no interval.")
    if kind.metric == metrics.TIME and speedups is not None and not speedups["paired"].all():
        apart = int((~speedups["paired"].astype(bool)).sum())
        texts.append(
            f"{apart} of {units.count(len(speedups))} ratios are of times not taken in turns."
        )
    if guessed := [square for square in every if square.reason and not isnan(square.ratio)]:
        why = dict.fromkeys(square.reason for square in guessed)
        texts.append(f"White and slanted: predicted ({', '.join(why)}).")
    if lost := [square for square in every if isnan(square.ratio)]:
        why = dict.fromkeys(square.reason or "the baseline" for square in lost)
        texts.append(f"“{UNKNOWN}”: not known ({', '.join(why)}).")
    if causal_series(analysis, list(squares)):
        texts.append(f"{CAUSAL}: no token sees later ones, as tokens of other rows do.")
    if step > 1:
        texts.append(f"One length of {step} is shown; the tables have all.")
    if analysis.suspects:
        texts.append(f"{SUSPECT} suspect, not ranked.")
    return " ".join(texts)


def _base(analysis: Analysis, modes: Sequence[str]) -> str:
    """The name of the baseline, in each mode where they differ."""
    cases = analysis.cases
    names = {
        mode: baseline_label(cases["series"], analysis.baselines_by_mode[mode], analysis.suspects)
        for mode in modes
    }
    if len({*names.values()}) == 1:
        return names[modes[0]]
    return " and ".join(f"{name} in {mode}" for mode, name in names.items())
