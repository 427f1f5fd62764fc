"""Tables that compare stacks with their layers."""

from collections.abc import Iterator

from attnbench import units
from attnbench.analysis.stacks import BUILT, SUM
from attnbench.analysis.summary import Frame, Row
from attnbench.records import Outcome
from attnbench.render.cost_tables import by_length
from attnbench.render.grid import Cell, Column, Table, bounded, number, table, words


def split(stacks: Frame) -> Table:
    """Time, memory and state of each stack by kind of layer, at its longest length that was timed.

    `stacks` is that of the analysis.
    """
    timed = stacks[(stacks["layer"] == BUILT) & stacks["time_s"].notna()]
    longest = timed.groupby(["series", "mode"], sort=False)["seq_len"].max().reset_index()
    rows = longest.merge(stacks, on=["series", "mode", "seq_len"], how="left")

    def layers(row: Row) -> Cell:
        several = row["layers"] > 1 and row["layer"] not in (SUM, BUILT)
        return words(f"{row['layers']} × " * several + row["layer"])

    return table(
        rows.to_dict("records"),
        [
            Column.words("Stack", "series"),
            Column.words("Mode", "mode"),
            Column.number("N", "seq_len", units.count),
            Column("Layers", layers, "layer"),
            Column("Time, ms", lambda row: number(1e3 * row["time_s"])),
            Column("Of the built one", _share, "ratio"),
            Column.number("State", "state_bytes", units.size),
            Column("Peak, MiB", lambda row: number(row["peak_bytes"] / units.MIB)),
        ],
        name="stacks",
        title="Stacks by kind of layer",
        note="Times of layers are those of their own series, times their number; at level model a"
        " layer has its share of the classifier. Ratios to the built stack are paired, with 95 %"
        " confidence intervals over rounds. Peaks are those of each series, and do not add up."
        f" {units.NOTHING}: a layer that is no series of this sweep with the same workload:"
        " --models can name it, and --causal makes it causal, as stacks of recurrent layers are.",
        leading=4,
    )


def sums(stacks: Frame) -> Iterator[Table]:
    """The sum of its layers over the time of each stack, for each mode that has any."""
    known = stacks[stacks["layer"] == SUM].assign(outcome=str(Outcome.OK), cause="")
    for mode in dict.fromkeys(known.loc[known["ratio"].notna(), "mode"]):
        yield by_length(
            known,
            mode,
            "ratio",
            _share,
            name=f"stack_sum_{mode}",
            title=f"Sum of its layers, {mode}, over the time of the built stack",
            across="sum_over_built",
            note="What the layers take by themselves; below 1, the stack costs more than they do,"
            " such as for residual connections and colder caches. Paired; 95 % confidence"
            " intervals over rounds.",
        )


def _share(row: Row) -> Cell:
    return bounded(row["ratio"], row["low"], row["high"])
