"""Tables of the machine: roofline bounds, throughput, kernels, and prediction errors."""

from typing import Any

from attnbench import units
from attnbench.analysis.roofline import Bound, Roof
from attnbench.analysis.summary import Frame, Row
from attnbench.records import Mode
from attnbench.render.cost_tables import by_length
from attnbench.render.grid import Cell, Table, bare, bounded, words

SDPA = "scaled_dot_product_"  # begins the names of the operators of attention in torch
# the predictions of a quantity, and the heading of their columns
PREDICTIONS = (("first", "first guess"), ("refined", "refined"))


def over_bound(roofline: Frame, mode: str, roof: Roof) -> Table:
    """Time over the roofline bound, a row per series and a column per length."""

    def cell(row: Row) -> Cell:
        mark = " b" if row["bound"] == Bound.BYTES else ""
        return bounded(row["over"], row["low"], row["high"], mark)

    cases = roofline[roofline["mode"] == mode]
    raised = ", and raised to what the best case did" * roof.raised
    training = " Training counts three times the FLOPs of the forward pass."
    return by_length(
        cases,
        "over",
        cell,
        lengths=cases["seq_len"],
        name=f"over_floor_{mode}",
        title=f"{mode.capitalize()} time relative to the roofline bound of this machine, ×",
        across="over_floor",
        note=f"The bound is the longer of two times: FLOPs at {units.rate(roof.flops_per_s)}, the"
        " rate of a large matrix product, and the least bytes (parameters, inputs and outputs once)"
        f" at {units.size(roof.bytes_per_s)}/s, that of a large copy. Both peaks were measured on"
        f" this machine when the sweep began{raised}. “b” marks a bound set by bytes."
        f"{training * (mode == Mode.TRAINING)} FLOPs are those of matrix products alone, so a"
        " mechanism with few products is far above its bound in any implementation.",
    )


def rates(rates: Frame) -> Table:
    """FLOP/s of the core and of the rest, for series along which the two can be separated."""
    return Table(
        name="rates",
        title="Throughput of the attention core and of the rest",
        leading=2,
        columns=("Mechanism", "Mode", "Lengths", "Core, GFLOP/s", "Projections and shell, GFLOP/s"),
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
        note="Fitted to the times at all lengths, assuming one constant rate for each part; shown"
        " only where the core's share of the FLOPs varies enough along the lengths. Training counts"
        " three times the FLOPs of the forward pass.",
    )


def kernels(used: Frame) -> Table:
    """The kernels of fused attention that ran, a row for each that a series used in a mode."""
    return Table(
        name="kernels",
        title="Kernels of fused attention",
        columns=("Mechanism", "Form", "Mode", "N", "Operator", "On the GPU"),
        keys=("series", "form", "mode", "lengths", "operator", "gpu_kernels"),
        rows=tuple(
            (
                *(words(row[name]) for name in ("series", "form", "mode")),
                words(_span(row)),
                words(row["attention_kernel"].replace(SDPA, "") or units.NOTHING),
                words(row["attention_device_kernels"] or units.NOTHING),
            )
            for _, row in used.iterrows()
        ),
        note="As torch's profiler recorded them: flash, efficient and cudnn never store the"
        " weights, math does. Forms that are not listed call no fused attention, or run it in"
        " code that torch compiled for a CPU.",
    )


def _span(row: Row) -> str:
    """`128 to 8,192`, or how many lengths in between if not all are meant."""
    first, last = units.length(row["shortest"]), units.length(row["longest"])
    if row["lengths"] == 1:
        return first
    return f"{first} to {last} ({units.many(row['lengths'], 'length')})"


def predictions(errors: Frame) -> Table:
    """Prediction errors of seconds and bytes as factors, per mechanism."""
    quantities = list(dict.fromkeys(errors["quantity"]))
    columns = [
        (quantity, f"{kind}_{end}", f"{quantity.capitalize()}, {heading}, {end}")
        for quantity in quantities
        for kind, heading in PREDICTIONS
        for end in ("median", "worst")
    ]
    rows = []
    for name, own in errors.groupby("mechanism", sort=False):
        most, factors = int(own["cases"].max()), own.set_index("quantity").reindex(quantities)
        cells = [_ratio(factors.loc[quantity, key]) for quantity, key, _ in columns]
        rows.append((words(name), Cell(units.count(most), most), *cells))
    return Table(
        name="predictions",
        title="Prediction error (factor)",
        columns=("Mechanism", "Cases", *(heading for *_, heading in columns)),
        rows=tuple(rows),
        note="The first guess uses FLOPs alone. The refined prediction uses all that had run before"
        " the case first ran; the figures show it where nothing was measured. Memory is the"
        " allocated peak. 1 is exact; over- and underestimates count the same.",
    )


def _ratio(value: Any) -> Cell:
    return Cell(units.ratio(value), bare(float(value)))


def _rate(row: Row, part: str) -> Cell:
    point, *ends = (float(row[part + end]) / 1e9 for end in ("", "_low", "_high"))
    return Cell(units.interval(units.plain(point), *map(units.plain, ends)), point, *ends)
