"""Decoding: the figure of step time and state against context, and its tables."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from attnbench import units
from attnbench.analysis.summary import Frame
from attnbench.metrics import STATE, TABLE, TIME
from attnbench.records import FigureSize
from attnbench.render.cost_tables import by_length, measured, per_layer
from attnbench.render.figures import clock_note, curves, draw_row, faded, notes
from attnbench.render.grid import Table, number
from attnbench.render.panels import PanelGrid, styled
from attnbench.render.styles import SHEETS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

USUAL_WIDTH = 64  # least width of a head in today's models


def decode_figure(summary: Frame, mode: str, size: FigureSize = FigureSize.TEXT) -> "Figure":
    """Time per output token and bytes of the state against context, in a mode that steps.

    Bars are 95 % confidence intervals; bytes are exact.
    """
    time, kept = TABLE[TIME], TABLE[STATE]
    step, state = (curves(summary, mode, metric) for metric in (time, kept))
    axis, of = "time per output token", per_layer(summary)
    with styled(SHEETS[size]):
        series = summary["series"]
        panels = PanelGrid(SHEETS[size], series, rows=2, columns=1, faded=faded([step, state]))
        legends = [
            draw_row(panels, 0, {f"Time per decoding step{of}": step}, axis, time.unit),
            draw_row(panels, 1, {f"Size of the state{of}": state}, "bytes", kept.unit, "context"),
        ]
        return panels.finished(legends, [*clock_note(summary), *notes([step]), *_fills(summary)])


def _fills(summary: Frame) -> Iterator[str]:
    """From which length on states were filled, if any were."""
    filled = summary[summary["filled"] & summary["time_s"].notna()]
    if len(filled):
        yield f"States filled without prompts from {units.tick(int(filled['seq_len'].min()))}."


def first_token(summary: Frame, mode: str) -> Table:
    """Milliseconds to the first token, with the 95 % confidence interval."""
    return replace(
        measured(summary, mode, TABLE["ttft_s"]),
        name="ttft",
        title=f"Time to first token (TTFT), prompts of N − 1 tokens, ms{per_layer(summary)}",
        across="ttft_ms",
        note="The causal pass over the prompt that fills the state; the median of a few in each"
        " process, not in turns with other series. ± is the larger half-width of the 95 %"
        f" confidence interval over rounds; {units.UNBOUNDED} marks a single round.",
    )


def state(summary: Frame, mode: str) -> Table:
    """KiB of the state that the tokens of a batch leave."""
    d = int((summary["width"] // summary["heads"]).min())
    narrow = (
        f" Recurrent states grow with d²: here d = {d}, in today's models at least {USUAL_WIDTH}."
    )
    return by_length(
        summary,
        mode,
        STATE,
        lambda row: number(row[STATE], lambda size: f"{size / 1024:,.10g}"),
        name="state",
        title=f"State after N tokens, KiB{per_layer(summary)}",
        across="state_bytes",
        note="Counted from the state's own tensors, each storage once; of one layer and the whole"
        f" batch. Exact. 1 KiB = 1,024 bytes.{narrow * (d < USUAL_WIDTH)}",
    )
