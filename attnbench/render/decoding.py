"""Decoding: its tables."""

from dataclasses import replace

from attnbench import units
from attnbench.analysis.summary import Frame
from attnbench.metrics import STATE, TABLE
from attnbench.render.cost_tables import by_length, measured, per_layer
from attnbench.render.grid import Table, number

USUAL_WIDTH = 64  # least width of a head in today's models


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
