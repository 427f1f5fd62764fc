"""The figure of a model's layers: the time of a step by context, stacked by kind of layer."""

from collections.abc import Sequence
from itertools import cycle

from matplotlib.figure import Figure

from attnbench.commands.model.costs import LayerKind, ModelCosts
from attnbench.records import units
from attnbench.report.cost_tables import per_step, timed_by
from attnbench.report.figures import DPI, WIDTH, lay_out, styled
from attnbench.report.styles import series_styles, tinted

BAR = 0.62  # width, where neighbours are 1 apart
LIGHTER = 0.15
GREYS = ("0.6", "0.78", "0.9")


def colours_of(kinds: Sequence[LayerKind]) -> list[str]:
    """Those of their mechanisms, and greys of feed-forwards, the darkest first."""
    styles = series_styles(kind.mechanism for kind in kinds if not kind.feeds)
    greys = cycle(GREYS)
    return [
        next(greys) if kind.feeds else tinted(styles[kind.mechanism]["color"], LIGHTER)
        for kind in kinds
    ]


def layer_figure(costs: ModelCosts) -> Figure:
    """Bars of milliseconds at each context, stacked by kind, with the interval of each sum.

    A context at which some kind was not measured, though it can be, has no bar; some has one.
    """
    measured = [i for i, kind in enumerate(costs.kinds) if kind.mechanism]
    colours = colours_of([costs.kinds[i] for i in measured])
    times = costs.times
    unmeasured = sum(kind.layers for kind in costs.kinds if kind.reason and not kind.feeds)
    unfed = sum(kind.layers for kind in costs.kinds if kind.reason and kind.feeds)
    places = costs.summed_steps
    with styled():
        figure = Figure(figsize=(WIDTH, WIDTH), dpi=DPI)
        axes = figure.subplots()
        below = [0.0] * len(places)
        for i, colour in zip(measured, colours, strict=True):
            words = costs.kinds[i].words
            heights = [1e3 * times.seconds[words, place].point for place in places]
            axes.bar(range(len(places)), heights, BAR, below, color=colour)
            below = [a + b for a, b in zip(below, heights, strict=True)]
        for x, place in enumerate(places):
            total = times.sums[place]
            axes.vlines(x, 1e3 * total.low, 1e3 * total.high, "0.2", linewidth=0.8)
        axes.set_xticks(range(len(places)), [units.tick(place.seq_len) for place in places])
        axes.grid(False, axis="x")
        axes.set_xlabel("context, tokens (K = 1,024)")
        axes.set_ylabel("ms per step, all layers")
        cases = costs.analysis.cases
        of_step = cases[cases["step"] == places[0].step]
        axes.set_title(f"Time per {per_step(of_step, 'token')} by context")
        sentences = [f"{units.capitalised(timed_by(costs.analysis.cases))}."]
        if any(units.has_value(times.sums[place].high) for place in places):
            sentences.append("Lines: 95 % CI of the sum.")
        if unmeasured:
            sentences.append(f"Without {units.many(unmeasured, 'layer')} that cannot be measured.")
        if unfed:
            sentences.append(f"Without feed-forwards of {units.many(unfed, 'layer')}.")
        if absent := [units.tick(p.seq_len) for p in costs.steps if p not in places]:
            sentences.append(f"Not measured: {', '.join(absent)}.")
        keys = {
            costs.kinds[i].words: {"color": colour, "linewidth": 5}
            for i, colour in reversed([*zip(measured, colours, strict=True)])
        }
        lay_out(figure, keys, " ".join(sentences))
    return figure
