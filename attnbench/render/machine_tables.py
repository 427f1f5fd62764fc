"""Tables of the machine: roofline bounds, rates of work, and how well costs were predicted."""

from typing import Any

from attnbench import units
from attnbench.analysis.roofline import Bound, Roof
from attnbench.analysis.summary import Frame, Row
from attnbench.records import Mode
from attnbench.render.cost_tables import by_length
from attnbench.render.grid import Cell, Table, bare, bounded, words

RAISED = ", too low, and are raised to what the best case did"
# the predictions of a quantity, and what heads their columns
PREDICTIONS = (("first", "first guess"), ("refined", "refined"))


def over_bound(roofline: Frame, mode: str, roof: Roof) -> Table:
    """Time over the roofline bound, mechanisms down and lengths across."""

    def cell(row: Row) -> Cell:
        mark = " b" if row["bound"] == Bound.BYTES else ""
        return bounded(row["over"], row["low"], row["high"], mark)

    cases = roofline[roofline["mode"] == mode]
    training = " Training counts three times the FLOPs of the forward pass."
    return by_length(
        cases,
        "over",
        cell,
        lengths=cases["seq_len"],
        name=f"over_floor_{mode}",
        title=f"{mode.capitalize()} time relative to the roofline bound of this machine, ×",
        across="over_floor",
        note=f"The bound is the longer of FLOPs at {units.rate(roof.flops_per_s)}, the rate of"
        f" a large matrix product, and the least bytes at {units.size(roof.bytes_per_s)}/s, that"
        " of a large copy: parameters, inputs and outputs once. Both peaks were measured on this"
        f" machine when the sweep began{RAISED * roof.raised}."
        f" “b” marks a bound set by bytes.{training * (mode == Mode.TRAINING)}"
        " FLOPs are of matrix products alone, so a mechanism of few products lies far above its"
        " bound whatever it does.",
    )


def rates(rates: Frame) -> Table:
    """FLOP/s of the core and of the rest, for curves whose lengths tell the two apart."""
    return Table(
        name="rates",
        title="Work per second of the attention core, and of all else",
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
        note="Fitted to the times of all lengths, as if each part ran at one rate throughout; only"
        " for curves along which the core's share of the FLOPs changes enough to tell. Training"
        " counts three times the FLOPs of the forward pass.",
    )


def predictions(errors: Frame) -> Table:
    """By which factor predicted seconds and bytes were off, per mechanism."""
    quantities = list(dict.fromkeys(errors["quantity"]))
    columns = [
        (quantity, f"{kind}_{end}", f"{quantity.capitalize()}, {heading}, {end}")
        for quantity in quantities
        for kind, heading in PREDICTIONS
        for end in ("median", "worst")
    ]
    rows = []
    for name, found in errors.groupby("mechanism", sort=False):
        most, factors = int(found["cases"].max()), found.set_index("quantity").reindex(quantities)
        cells = [_ratio(factors.loc[quantity, key]) for quantity, key, _ in columns]
        rows.append((words(name), Cell(units.count(most), most), *cells))
    return Table(
        name="predictions",
        title="By which factor predictions were off",
        columns=("Mechanism", "Cases", *(heading for *_, heading in columns)),
        rows=tuple(rows),
        note="The first guess is from FLOPs alone, before anything ran. The refined one is what the"
        " sweep made of it by the time the case first ran, from all that had run before; the"
        " figures show it where nothing was measured. Memory is the allocated peak. A factor of"
        " 1 is exact; over- and underestimates count the same.",
    )


def _ratio(value: Any) -> Cell:
    return Cell(units.ratio(value), bare(float(value)))


def _rate(row: Row, part: str) -> Cell:
    point, *ends = (float(row[part + end]) / 1e9 for end in ("", "_low", "_high"))
    return Cell(units.interval(units.plain(point), *map(units.plain, ends)), point, *ends)
