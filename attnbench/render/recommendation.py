"""What to choose at one length: a sentence for each mode, and a ranking."""

from attnbench import units
from attnbench.analysis.summary import Frame, Row
from attnbench.metrics import MEMORY
from attnbench.render.cost_tables import counted, factor, milliseconds, per_layer
from attnbench.render.grid import Cell, Column, Table, bounded, number, table
from attnbench.render.styles import labels


def recommended(block: Frame) -> str:
    """`inference: Fastformer, 1.18× [1.02, 1.36] as fast as Linformer.`; of one mode and sizes."""
    names, first = block["series"].map(labels(block["series"])), block["rank"] == 1
    said = " and ".join(names[first]) or "nothing that fits was measured"
    if first.sum() > 1:
        said += ", between which no difference is certain"
    elif (block["rank"] > 1).any():
        ratio = factor(*block[["ratio", "low", "high"]].iloc[1])
        said += f", {ratio} as fast as {names.iloc[1]}"
    late = block[block["rank"].isna() & (block["excluded"] == "") & (block["predicted_s"] > 0)]
    guesses = (late["batch_scale"] * late["predicted_s"]).map(units.seconds)
    if few := units.few(names[late.index] + " " + guesses):
        said += f"; not measured, but predicted: {few}"
    return f"{block['mode'].iloc[0]}: {said}."


def ranking(advice: Frame) -> Table:
    """A row for each series, in the order of `recommend`."""
    return table(
        advice.to_dict("records"),
        [
            Column.words("Mechanism", "series"),
            Column.words("Mode", "mode"),
            Column.number("Rank", "rank", units.count),
            Column("Time, ms", _time),
            Column("To the first, ×", lambda row: bounded(row["ratio"], row["low"], row["high"])),
            Column("Peak, MiB", lambda row: counted(row[MEMORY] / units.MIB)),
            Column.words("Excluded", "excluded"),
        ],
        name="ranking",
        title=f"Ranking at N = {units.count(advice['seq_len'].iloc[0])}{per_layer(advice)}",
        note="Series that tie share a rank; intervals of ratios hold at 95 % for all pairs at once."
        " Peaks, and so --memory, are of one case, not of a whole language model.",
    )


def _time(row: Row) -> Cell:
    if row["predicted_s"] > 0:
        guess = 1e3 * row["batch_scale"] * row["predicted_s"]
        return number(guess, lambda ms: f"{units.plain(ms)} predicted")
    return milliseconds(row, row["batch_scale"])
