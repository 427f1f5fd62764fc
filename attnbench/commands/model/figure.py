"""The figure of a model's layers: the time of a step by context, stacked by kind of layer."""

from matplotlib.figure import Figure

from attnbench.commands.model.costs import ModelCosts
from attnbench.records import units
from attnbench.report.cost_tables import per_step, timed_by
from attnbench.report.figures import DPI, WIDTH, lay_out, styled
from attnbench.report.styles import series_styles, tinted

BAR = 0.62  # width, where neighbours are 1 apart
LIGHTER = 0.15


def layer_figure(costs: ModelCosts) -> Figure:
    """Bars of milliseconds at each context, stacked by kind, with the interval of each sum.

    A context at which some kind was not measured, though it can be, has no bar.
    """
    measured = [i for i, kind in enumerate(costs.kinds) if kind.mechanism]
    styles = series_styles(costs.kinds[i].mechanism for i in measured)
    colours = [tinted(styles[costs.kinds[i].mechanism]["color"], LIGHTER) for i in measured]
    times = costs.times
    lost = sum(kind.layers for kind in costs.kinds if kind.reason)
    drawn = [place for place in costs.steps if place in times.sums]
    with styled():
        figure = Figure(figsize=(WIDTH, WIDTH), dpi=DPI)
        axes = figure.subplots()
        below = [0.0] * len(drawn)
        for i, colour in zip(measured, colours, strict=True):
            words = costs.kinds[i].words
            own = [1e3 * times.seconds[words, place].point for place in drawn]
            axes.bar(range(len(drawn)), own, BAR, below, color=colour)
            below = [a + b for a, b in zip(below, own, strict=True)]
        for x, place in enumerate(drawn):
            whole = times.sums[place]
            axes.vlines(x, 1e3 * whole.low, 1e3 * whole.high, "0.2", linewidth=0.8)
        axes.set_xticks(range(len(drawn)), [units.tick(place.seq_len) for place in drawn])
        axes.grid(False, axis="x")
        axes.set_xlabel("context, tokens (K = 1,024)")
        axes.set_ylabel("ms per step, all layers")
        cases = costs.analysis.cases
        of_step = cases[cases["step"] == drawn[0].step]
        axes.set_title(f"Time per {per_step(of_step, 'token')} by context")
        said = [f"{units.capitalised(timed_by(costs.analysis.cases))}."]
        if any(units.has_value(times.sums[place].high) for place in drawn):
            said.append("Lines: 95 % CI of the sum.")
        if lost:
            said.append(f"Without {units.many(lost, 'layer')} that cannot be measured.")
        if absent := [units.tick(p.seq_len) for p in costs.steps if p not in drawn]:
            said.append(f"Not measured: {', '.join(absent)}.")
        keys = {
            costs.kinds[i].words: {"color": colour, "linewidth": 5}
            for i, colour in reversed([*zip(measured, colours, strict=True)])
        }
        lay_out(figure, keys, " ".join(said))
    return figure
