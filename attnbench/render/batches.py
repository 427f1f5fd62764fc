"""Decoding at several batches: the trade-off of serving, throughput against time per token."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attnbench import units
from attnbench.analysis.summary import Frame
from attnbench.records import FigureSize
from attnbench.render import delimited
from attnbench.render.cost_tables import milliseconds
from attnbench.render.figures import clock, clock_note
from attnbench.render.grid import Column, Table, table
from attnbench.render.panels import LegendEntry, PanelGrid, fixed_ticks, log_ticks, saved, styled
from attnbench.render.styles import SHEETS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARGIN = 1.25  # around the points, as a factor
PARETO = 0.7  # width of the line behind the curves, in units of the type


def batch_figure(cases: Frame, size: FigureSize = FigureSize.TEXT) -> "Figure":
    """Tokens per second against time per token, a curve per series and a marker per batch.

    `cases` are those of `steps`; all are at the longest context of each series. Behind the curves
    is the Pareto line through the `best`.
    """
    longest = cases[cases["seq_len"] == cases.groupby("series")["seq_len"].transform("max")]
    with styled(SHEETS[size]):
        panels = PanelGrid(SHEETS[size], cases["series"], rows=1, columns=1)
        axes, entries = panels.rows[0][0], []
        for name, own in longest.groupby("series", sort=False):
            points = own.sort_values("batch")
            times, rates = points["tpot_s"].to_numpy(float), points["tokens_per_s"].to_numpy(float)
            axes.plot(times, rates, **panels.styles[str(name)])
            for end in {0, len(points) - 1}:
                size_of, at = str(points["batch"].iloc[end]), (times[end], rates[end])
                axes.annotate(size_of, at, (3, 3), textcoords="offset points")
            entries.append(LegendEntry(str(name), float(rates[-1])))
        front = best(longest)
        width = PARETO * SHEETS[size].type
        axes.plot(front["tpot_s"], front["tokens_per_s"], color="0.85", linewidth=width, zorder=1)
        axes.set(xscale="log", yscale="log")
        for set_limits, axis, column, text in (
            (axes.set_xlim, axes.xaxis, "tpot_s", units.seconds),
            (axes.set_ylim, axes.yaxis, "tokens_per_s", units.plain),
        ):
            low, high = longest[column].min() / MARGIN, longest[column].max() * MARGIN
            set_limits(low, high)
            fixed_ticks(axis, {tick: text(tick) for tick in log_ticks(low, high, 10)})
        axes.set_xlabel(f"{clock(cases)} per output token")
        axes.set_ylabel("tokens per second, whole batch")
        lengths = units.between(longest["seq_len"].min(), longest["seq_len"].max())
        note = f"Numbers are sequences per batch; context of {lengths} tokens. Broad grey line:"
        pareto = "the Pareto front; any other choice has a rival with more tokens in less time."
        return panels.finished([entries], [*clock_note(cases), note, pareto])


def best(cases: Frame) -> Frame:
    """The Pareto front, fastest step first: no faster step gives as many tokens."""
    ordered = cases.sort_values(["tpot_s", "tokens_per_s"], ascending=[True, False])
    most = ordered["tokens_per_s"].cummax()
    return ordered[most > most.shift(fill_value=0.0)]


def batches(cases: Frame) -> Table:
    """A row for each series, context and batch; `cases` are those of `steps`."""
    order = {name: i for i, name in enumerate(dict.fromkeys(cases["series"]))}
    rows = cases.assign(order=cases["series"].map(order))
    return table(
        rows.sort_values(["order", "seq_len", "batch"]).to_dict("records"),
        [
            Column.words("Mechanism", "series"),
            Column.number("N", "seq_len", units.count),
            Column.number("Batch", "batch", units.count),
            Column("TPOT, ms", milliseconds),
            Column.number("Tokens per second", "tokens_per_s"),
            Column.number("State", "state_bytes", units.size),
        ],
        name="batches",
        title="Decoding by batch",
        note="A step of a batch gives one token of each of its sequences. Batches are not timed in"
        " turns with one another.",
        leading=2,
    )


def steps(cases: Frame) -> Frame | None:
    """The timed steps of all variants; None unless these differ in batch alone."""
    timed = cases[cases["tpot_s"].notna()] if "tpot_s" in cases else cases[:0]
    alike = timed[["width", "heads", "dtype"]].drop_duplicates()
    return timed if len(alike) == 1 and timed["batch"].nunique() > 1 else None


def batch_files(cases: Frame, formats: Sequence[str], size: FigureSize) -> dict[str, bytes]:
    """The figure in each of `formats` and the table, by the names of their files."""
    drawn = batch_figure(cases, size)
    files = {f"batches.{end}": saved(drawn, end) for end in formats}
    return files | {"batches.csv": delimited.table(batches(cases))}
