"""Tables of the roofline: how far above its least possible time each case lies."""

from attnbench.analysis.roofline import Roof
from attnbench.analysis.summary import Frame, Row
from attnbench.records import Mode
from attnbench.render import units
from attnbench.render.grid import Cell, Table, bare, words

RAISED = ", too low, and are raised to what the best case did"


def over_floor(roofline: Frame, mode: str, roof: Roof) -> Table:
    """Time over the floor, mechanisms down and lengths across."""
    rows = roofline[roofline["mode"] == mode]
    lengths = sorted(set(rows["seq_len"]))
    cells = {(row["series"], row["seq_len"]): _factor(row) for _, row in rows.iterrows()}
    nothing = Cell(units.NOTHING)
    training = " Training counts three times the FLOPs of the forward pass."
    counted = training if mode == Mode.TRAINING else ""
    return Table(
        name=f"over_floor_{mode}",
        title=f"{mode.capitalize()} time relative to the roofline bound of this machine, ×",
        columns=("Mechanism", *map(units.length, lengths)),
        keys=("series",),
        across="over_floor",
        rows=tuple(
            (words(series), *(cells.get((series, length), nothing) for length in lengths))
            for series in dict.fromkeys(rows["series"])
        ),
        note=f"The floor is the longer of FLOPs at {units.rate(roof.flops_per_s)}, the rate of"
        f" a large matrix product, and the least bytes at {units.size(roof.bytes_per_s)}/s, that"
        " of a large copy: parameters, inputs and outputs once. Both peaks were measured on this"
        f" machine when the sweep began{RAISED * roof.raised}."
        f" “b” marks a floor of bytes.{counted}"
        " FLOPs are of matrix products alone, so a mechanism of few products lies far above its"
        " floor whatever it does.",
    )


def apart(rates: Frame) -> Table:
    """FLOP/s of the core and of the rest, where the lengths of a sweep can tell them."""
    return Table(
        name="rates",
        title="Work per second of the core and of all else, apart",
        columns=("Mechanism", "Mode", "Lengths", "Core, GFLOP/s", "Linear maps and shell, GFLOP/s"),
        rows=tuple(
            (
                words(row["series"]),
                words(row["mode"]),
                Cell(units.count(row["lengths"]), int(row["lengths"])),
                _rate(row, "core"),
                _rate(row, "rest"),
            )
            for _, row in rates.iterrows()
        ),
        note="Fitted to the times of all lengths, as if each part ran at one rate throughout; only"
        " for curves along which the core's share of the FLOPs changes enough to tell. Training"
        " counts three times the FLOPs of the forward pass.",
    )


def _factor(row: Row) -> Cell:
    mark = " b" if row["bound"] == "bytes" else ""
    ends = (float(row["over"]), bare(row["low"]), bare(row["high"]))
    return Cell(units.estimate(row["over"], row["low"], row["high"]) + mark, *ends)


def _rate(row: Row, part: str) -> Cell:
    point, *ends = (float(row[part + end]) / 1e9 for end in ("", "_low", "_high"))
    return Cell(units.interval(units.plain(point), *map(units.plain, ends)), point, *ends)
