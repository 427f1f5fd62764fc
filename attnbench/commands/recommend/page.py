"""What to choose at one length: a sentence for each mode, and a ranking."""

from attnbench.analysis.conclusions import Answer, Conclusion, Expected
from attnbench.analysis.summary import Frame, Row
from attnbench.records import units
from attnbench.records.metrics import MEMORY
from attnbench.report.conclusions import in_order
from attnbench.report.cost_tables import counted, factor, milliseconds, per_layer
from attnbench.report.grid import Cell, Column, Table, bounded, number, table
from attnbench.report.styles import labels


def recommended(conclusion: Conclusion, block: Frame) -> str:
    """`inference at 4,096: Fastformer (of 3 timed); Linformer needs 1.18× [1.02, 1.36] the time.`

    `block` are the rows of `recommend` that the conclusion is about. What was excluded stands in
    the table.
    """
    names = labels(block["series"], block.loc[block["suspect"] != "", "series"].to_list())
    leaders = in_order([names[name] for name in conclusion.series])
    match conclusion.answer:
        case Answer.TIE:
            sentence = f"{leaders} tie"
        case Answer.ALONE:
            sentence = f"{leaders} alone, of those that may be ranked, was timed there"
        case Answer.NOT_KNOWN if conclusion.series:
            sentence = f"not known after one round, lowest so far {leaders}"
        case Answer.NOT_KNOWN:
            sentence = "nothing that may be ranked was timed"
        case _:
            value = conclusion.value
            ratio = factor(value.point, value.low, value.high)
            of = f" (of {conclusion.measured} timed)" if len(block) > conclusion.measured else ""
            sentence = f"{leaders}{of}; {names[conclusion.rival]} needs {ratio} the time"
    late = block[block["rank"].isna() & (block["excluded"] == "") & (block["predicted_s"] > 0)]
    guesses = (
        late["series"].map(names)
        + " "
        + (late["batch_scale"] * late["predicted_s"]).map(units.seconds)
    )
    if few := units.few(guesses):
        sentence += f"; not measured, but predicted: {few}"
    guessed = {*late["series"]}
    unknown = [name for name in conclusion.expected(Expected.UNKNOWN) if name not in guessed]
    if unknown:
        sentence += f"; not known: {units.few(names[name] for name in unknown)}"
    if conclusion.decided_by and conclusion.answer is Answer.NOT_KNOWN:
        sentence += f"; {conclusion.decided_by} may decide it"
    where = ", ".join(filter(None, (conclusion.mode, conclusion.scope.sizes)))
    return f"{where} at {units.count(block['seq_len'].iloc[0])}: {sentence}."


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
