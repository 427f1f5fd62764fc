"""Decoding: the figure of step time and state against context, and its tables."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from attnbench import units
from attnbench.analysis.summary import Frame, Row
from attnbench.records import FigureSize, Mode
from attnbench.render.cost_tables import by_length
from attnbench.render.curves import Quantity, curves
from attnbench.render.figures import notes, row_of
from attnbench.render.grid import Cell, Table, bounded, words
from attnbench.render.panels import Panels, styled
from attnbench.render.styles import SHEETS, series_styles

if TYPE_CHECKING:
    from matplotlib.figure import Figure

USUAL_WIDTH = 64  # of a head, at least, in models of today

STEP = Quantity(
    value="time_s",
    low="time_lo_s",
    high="time_hi_s",
    predicted="refined_s",
    axis="time per output token",
    text=units.seconds,
    base=10,
)
STATE = Quantity(
    value="state_bytes",
    low=None,
    high=None,
    predicted="state_bytes",  # it is counted or unknown
    axis="bytes of the state",
    text=units.size,
    base=2,
)


def decode_figure(summary: Frame, size: FigureSize = FigureSize.TEXT) -> "Figure":
    """Time per output token and bytes of the state against context.

    Bands are 95 % confidence intervals; bytes are exact.
    """
    sheet = SHEETS[size]
    styles = series_styles(summary["series"], sheet.type)
    step, state = (curves(summary, Mode.DECODE, quantity) for quantity in (STEP, STATE))
    with styled(sheet):
        panels = Panels(sheet, rows=2, columns=1)
        legends = [
            row_of(panels, 0, {"Step": step}, styles, STEP),
            row_of(panels, 1, {"State": state}, styles, STATE),
        ]
        panels.label(0, STEP.axis)
        panels.label(1, STATE.axis)
        axes = panels.rows[1][0]
        axes.set_xlabel(axes.get_xlabel().replace("sequence length", "context"))
        return panels.arranged(legends, [*notes(step)])


def first_token(summary: Frame) -> Table:
    """Milliseconds to the first token, with the 95 % confidence interval."""

    def cell(row: Row) -> Cell:
        return bounded(*(1e3 * row[key] for key in ("ttft_s", "ttft_lo_s", "ttft_hi_s")))

    return by_length(
        summary[summary["mode"] == Mode.DECODE],
        "ttft_s",
        cell,
        lengths=summary["seq_len"],
        name="ttft",
        title="Time to first token (TTFT), prompts of N − 1 tokens, ms",
        across="ttft_ms",
        note="The causal pass over the prompt that fills the state; the median of a few in each"
        " process, not in turns with other series. ± is the larger half-width of the 95 %"
        f" confidence interval over rounds; {units.UNBOUNDED} marks a single round.",
    )


def state(summary: Frame) -> Table:
    """KiB of the state that the tokens of a batch leave."""

    def cell(row: Row) -> Cell:
        return Cell(f"{row['state_bytes'] / 1024:,.6g}", float(row["state_bytes"]))

    return by_length(
        summary[summary["mode"] == Mode.DECODE],
        "state_bytes",
        cell,
        lengths=summary["seq_len"],
        name="state",
        title="State after N tokens, KiB",
        across="state_bytes",
        note="Counted from the state's own tensors, each storage once; of one layer and the whole"
        " batch. Exact. 1 KiB = 1,024 bytes.",
    )


def overview(decoding: Frame) -> Table:
    """A row for each series at its longest context; `decoding` is that of the analysis."""
    return Table(
        name="decode",
        title="Decoding at the longest context",
        columns=(
            *("Mechanism", "N", "Batch", "TPOT, ms", "Tokens per second"),
            *("TTFT, ms", "State", "State per further token"),
        ),
        keys=("series", "seq_len", "batch", "tpot_ms", "tokens_per_s", "ttft_ms", "state_bytes")
        + ("state_token_bytes",),
        rows=tuple(
            (
                words(row["series"]),
                Cell(units.length(row["seq_len"]), int(row["seq_len"])),
                Cell(units.length(row["batch"]), int(row["batch"])),
                step_time(row),
                Cell(units.plain(row["tokens_per_s"]), float(row["tokens_per_s"])),
                bounded(*(1e3 * row[key] for key in ("ttft_s", "ttft_lo_s", "ttft_hi_s"))),
                state_size(row),
                _grown(row),
            )
            for _, row in decoding.iterrows()
        ),
        note=" ".join(
            [
                "One layer. A step of a batch gives one token of each of its sequences.",
                *_narrow(decoding),
            ]
        ),
    )


def _narrow(decoding: Frame) -> Iterator[str]:
    """That narrow heads flatter recurrent states."""
    if (d := int((decoding["width"] // decoding["heads"]).min())) < USUAL_WIDTH:
        yield (
            f"Recurrent states grow with d²: here d = {d}, in today's models at least"
            f" {USUAL_WIDTH}."
        )


def step_time(row: Row) -> Cell:
    """Milliseconds of a step."""
    return bounded(*(1e3 * row[key] for key in ("time_s", "time_lo_s", "time_hi_s")))


def state_size(row: Row) -> Cell:
    """The bytes of a state."""
    return Cell(units.size(row["state_bytes"]), float(row["state_bytes"]))


def _grown(row: Row) -> Cell:
    if not units.known(row["token_bytes"]):
        return Cell(units.NOTHING)
    return Cell(units.size(row["token_bytes"]), float(row["token_bytes"]))
