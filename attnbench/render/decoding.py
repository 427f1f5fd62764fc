"""Decoding: the figure of step time and state against context, and its tables."""

from dataclasses import replace
from typing import TYPE_CHECKING

from attnbench import units
from attnbench.analysis.summary import Frame
from attnbench.metrics import STATE, TABLE, TIME
from attnbench.records import FigureSize
from attnbench.render.cost_tables import by_length, measured, milliseconds
from attnbench.render.figures import clock, clock_note, curves, draw_row, notes
from attnbench.render.grid import Column, Table, number, table
from attnbench.render.panels import PanelGrid, styled
from attnbench.render.styles import SHEETS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

USUAL_WIDTH = 64  # of a head, at least, in models of today


def decode_figure(summary: Frame, mode: str, size: FigureSize = FigureSize.TEXT) -> "Figure":
    """Time per output token and bytes of the state against context, in a mode that steps.

    Bands are 95 % confidence intervals; bytes are exact.
    """
    time, kept = TABLE[TIME], TABLE[STATE]
    step, state = (curves(summary, mode, metric) for metric in (time, kept))
    axis = f"{clock(summary)} per output token"
    with styled(SHEETS[size]):
        panels = PanelGrid(SHEETS[size], summary["series"], rows=2, columns=1)
        legends = [
            draw_row(panels, 0, {"Step": step}, axis, time.unit),
            draw_row(panels, 1, {"State": state}, "bytes of the state", kept.unit, "context"),
        ]
        return panels.finished(legends, [*clock_note(summary), *notes(step)])


def first_token(summary: Frame, mode: str) -> Table:
    """Milliseconds to the first token, with the 95 % confidence interval."""
    return replace(
        measured(summary, mode, TABLE["ttft_s"]),
        name="ttft",
        title="Time to first token (TTFT), prompts of N − 1 tokens, ms",
        across="ttft_ms",
        note="The causal pass over the prompt that fills the state; the median of a few in each"
        " process, not in turns with other series. ± is the larger half-width of the 95 %"
        f" confidence interval over rounds; {units.UNBOUNDED} marks a single round.",
    )


def state(summary: Frame, mode: str) -> Table:
    """KiB of the state that the tokens of a batch leave."""
    return by_length(
        summary,
        mode,
        STATE,
        lambda row: number(row[STATE], lambda size: f"{size / 1024:,.6g}"),
        name="state",
        title="State after N tokens, KiB",
        across="state_bytes",
        note="Counted from the state's own tensors, each storage once; of one layer and the whole"
        " batch. Exact. 1 KiB = 1,024 bytes.",
    )


def overview(decoding: Frame) -> Table:
    """A row for each series at its longest context; `decoding` is that of the analysis."""
    notes = ["One layer. A step of a batch gives one token of each of its sequences."]
    if (d := int((decoding["width"] // decoding["heads"]).min())) < USUAL_WIDTH:
        notes.append(
            f"Recurrent states grow with d²: here d = {d}, in today's models at least"
            f" {USUAL_WIDTH}."
        )
    return table(
        decoding.to_dict("records"),
        [
            Column.words("Mechanism", "series"),
            Column.number("N", "seq_len", units.length),
            Column.number("Batch", "batch", units.length),
            Column("TPOT, ms", milliseconds),
            Column.number("Tokens per second", "tokens_per_s"),
            Column("TTFT, ms", lambda row: milliseconds(row, "ttft_s")),
            Column.number("State", STATE, units.size),
            Column.number(
                "State per further token", "token_bytes", units.size, key="state_token_bytes"
            ),
        ],
        name="decode",
        title="Decoding at the longest context",
        note=" ".join(notes),
    )
