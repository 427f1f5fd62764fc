"""What to choose at one length: a sentence for each mode, and a ranking."""

from attnbench.analysis import Answer, Conclusion, Expected, Frame, Row
from attnbench.records import metrics, units
from attnbench.report import cost_tables, grid, phrases, styles

ONE_CASE = "Peaks, and so --memory, are of one case, not of a whole language model."
STACKS = "Peaks are per layer here; --memory limits that of all layers of one case."


def recommended(conclusion: Conclusion, block: Frame) -> str:
    """`inference at 4,096: Fastformer (of 3 timed); Linformer needs 1.18× [1.02, 1.36] the time.`

    `block` are the rows of `recommend` that the conclusion is about. What was excluded stands in
    the table.
    """
    names = styles.labels(block["series"], block.loc[block["suspect"] != "", "series"].to_list())
    leaders = phrases.in_order([names[name] for name in conclusion.series])
    match conclusion.answer:
        case Answer.TIE:
            sentence = f"{leaders} tie"
        case Answer.ALONE:
            sentence = f"{leaders} alone, of those that may be ranked, was timed there"
        case Answer.NOT_KNOWN if conclusion.series:
            sentence = f"no winner after one round, lowest so far {leaders}"
        case Answer.NOT_KNOWN:
            sentence = "nothing that may be ranked was timed"
        case _:
            value = conclusion.value
            ratio = cost_tables.factor(value.point, value.low, value.high)
            of = f" (of {conclusion.measured} timed)" if len(block) > conclusion.measured else ""
            sentence = f"{leaders}{of}; {names[conclusion.rival]} needs {ratio} the time"
    late = block[block["ratio"].isna() & (block["excluded"] == "") & (block["predicted_s"] > 0)]
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


def ranking(advice: Frame) -> grid.Table:
    """A row for each series, in the order of `recommend`."""
    length = units.count(advice["seq_len"].iloc[0])
    per_layer = cost_tables.per_layer(advice)
    unranked = (advice["ratio"].notna() & advice["rank"].isna()).any()
    notes = [
        "Series that tie share a rank; intervals of ratios hold at 95 % for all pairs at once.",
        *(["After one round there are no intervals, and no ranks."] if unranked else []),
        STACKS if per_layer else ONE_CASE,
        *([cost_tables.MISSED["uncounted"][1]] if any(advice["uncounted"]) else []),
    ]
    return grid.table(
        advice.to_dict("records"),
        [
            grid.Column.words("Mechanism", "series"),
            grid.Column.words("Mode", "mode"),
            grid.Column.number("Rank", "rank", units.count),
            grid.Column("Time, ms", _time),
            grid.Column(
                "To the first, ×", lambda row: grid.bounded(row["ratio"], row["low"], row["high"])
            ),
            grid.Column("Peak, MiB", _peak),
            grid.Column.words("Excluded", "excluded"),
        ],
        name="ranking",
        title=f"Ranking at N = {length}{per_layer}",
        note=" ".join(notes),
    )


def _peak(row: Row) -> grid.Cell:
    """The peak that was measured, marked where it misses memory, or the predicted one."""
    if units.has_value(row[metrics.MEMORY]):
        cell = cost_tables.counted(row[metrics.MEMORY] / units.MIB)
        mark = cost_tables.MISSED["uncounted"][0] if row["uncounted"] else ""
        return cell._replace(text=cell.text + mark)
    if not row["predicted_bytes"] > 0:
        return grid.EMPTY
    guess = row["predicted_bytes"] / units.MIB
    return grid.number(guess, lambda mib: f"{units.plain(mib)} predicted")


def _time(row: Row) -> grid.Cell:
    if row["predicted_s"] > 0:
        guess = 1e3 * row["batch_scale"] * row["predicted_s"]
        return grid.number(guess, lambda ms: f"{units.plain(ms)} predicted")
    return cost_tables.milliseconds(row, row["batch_scale"])
