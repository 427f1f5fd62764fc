"""What to choose at one length: a sentence and a ranking."""

from typing import Any

from attnbench import units
from attnbench.analysis.recommend import MEASURED, PREDICTED
from attnbench.analysis.summary import Frame, Row
from attnbench.metrics import MEMORY, STATE, TIME
from attnbench.modes import find
from attnbench.records import PASSES, Level, Request
from attnbench.render.answers import in_order
from attnbench.render.cost_tables import batch, counted, factor, milliseconds, per_layer
from attnbench.render.grid import EMPTY, Cell, Column, Table, none_if_nan, number, table, words
from attnbench.render.names import labels_of

MOST = 3  # predicted series that a sentence names


def recommended(advice: Frame, memory_bytes: float | None = None) -> str:
    """`At N = 4,096 in inference: Fastformer, 1.18× [1.02, 1.36] as fast as Linformer.`"""
    names, chosen = labels_of(advice["series"]), advice[advice["excluded"] == ""]
    ranked, predicted = chosen[chosen["rank"] > 0], chosen[chosen["basis"] == PREDICTED]
    mode, seq_len = advice["mode"].iloc[0], units.count(advice["seq_len"].iloc[0])
    measured = advice[advice["basis"] == MEASURED]
    if measured.empty:
        parts = [f"Nothing was measured at {seq_len} in {mode}."]
    elif ranked.empty:
        fits = "can be ranked"
        if memory_bytes is not None and not (measured[MEMORY] <= memory_bytes).any():
            fits = f"fits into {units.size(memory_bytes)}"
        parts = [f"At N = {seq_len} in {mode}: nothing that was measured {fits}."]
    else:
        parts = [f"At N = {seq_len} in {mode}: {_best(ranked, names)}."]
        # whose band does not lie above the time of the first
        predicted = predicted[~(predicted["time_lo_s"] > ranked[TIME].iloc[0])]
    if len(predicted):
        shown = [_predicted(row, names) for row in predicted.head(MOST).to_dict("records")]
        more = f" and {len(predicted) - MOST} more" * (len(predicted) > MOST)
        rivals = "Not measured, and may be faster" if len(ranked) else "Predicted"
        parts.append(f"{rivals}: {', '.join(shown)}{more}.")
    if ranked.empty and memory_bytes is not None and (advice["basis"] == PREDICTED).any():
        parts.append(_fitting(advice, names, memory_bytes))
    return " ".join(parts)


def _best(ranked: Frame, names: dict[str, str]) -> str:
    """Who leads, and by how much."""
    labels = [names[series] for series in ranked["series"]]
    ties = labels[: int((ranked["rank"] == 1).sum())]
    if len(labels) == 1:
        return f"{labels[0]} is the only one that was measured and is not excluded"
    ratio, low, high = ranked[["ratio", "low", "high"]].iloc[1]
    if not units.has_value(low):
        return f"{labels[0]} took the least time; after one round no difference is certain"
    if len(ties) > 1:
        return f"{in_order(ties)} tie"
    return f"{labels[0]}, {factor(ratio, low, high)} as fast as {labels[1]}"


def _predicted(row: dict[Any, Any], names: dict[str, str]) -> str:
    """`Fastformer 306 ms [210 ms, 420 ms]`; without a band if there is none."""
    text, low, high = (units.seconds(row[name]) for name in (TIME, "time_lo_s", "time_hi_s"))
    band = f" [{low}, {high}]" if units.has_value(row["time_lo_s"]) else ""
    return f"{names[row['series']]} {text}{band}"


def _fitting(advice: Frame, names: dict[str, str], memory_bytes: float) -> str:
    """Which of the series whose peak is known or predicted would fit."""
    known = advice[advice[MEMORY] > 0]
    gone = [names[series] for series in known.loc[known[MEMORY] > memory_bytes, "series"]]
    limit = f"would fit into {units.size(memory_bytes)}"
    if len(gone) == len(known):
        return f"None is predicted to fit into {units.size(memory_bytes)}."
    return f"All but {in_order(gone)} {limit}." if gone else f"All {limit}."


def ranking(advice: Frame, request: Request) -> Table:
    """A row for each series, in the order of `recommend`; columns without any value are left out.

    `request` is that of the sweep.
    """
    mode, seq_len = str(advice["mode"].iloc[0]), units.count(advice["seq_len"].iloc[0])
    columns = [
        Column.words("Mechanism", "series"),
        Column("Rank", lambda row: number(row["rank"], units.count)),
        Column("Time, ms", _time),
        Column("Ratio to the first", _ratio),
        Column("Peak, MiB", lambda row: counted(row[MEMORY] / units.MIB)),
        Column("State", lambda row: _state(row[STATE])),
        Column.words("Basis", "basis"),
        Column("Excluded", lambda row: words(row["excluded"] or units.NOTHING)),
    ]
    rows = advice.to_dict("records")
    empty = ("", units.NOTHING)
    kept = [c for c in columns if any(c.cell(row).text not in empty for row in rows)]
    work = "one step" if find(mode).steps else f"a batch of {batch(advice, request.batch_tokens)}"
    model = "the model of this sweep" if request.level is Level.MODEL else "one layer"
    prompts = "" if mode in PASSES else ", prompts that ran included"
    guessed = ""
    if (advice["basis"] == PREDICTED).any():
        guessed = " “≈” marks what is predicted, with a 95 % band and without a rank."
    note = (
        f"Times are of {work}, with 95 % confidence intervals, those of ratios simultaneous; series"
        f" that tie share a rank.{guessed} Peaks, and so --memory, are of this one case, {model}"
        f" with a batch of {units.count(advice['batch'].max())}{prompts}: not of a whole language"
        " model."
    )
    return table(
        rows,
        kept,
        name=f"ranking_{mode}",
        title=f"Ranking at N = {seq_len}, {mode}{per_layer(advice)}",
        note=note,
    )


def _time(row: Row) -> Cell:
    if not units.has_value(row[TIME]):
        return EMPTY
    found = milliseconds(row)
    if row["basis"] != PREDICTED:
        return found
    text, low, high = (units.plain(1e3 * row[n]) for n in (TIME, "time_lo_s", "time_hi_s"))
    band = units.interval(text, low, high) if units.has_value(row["time_lo_s"]) else text
    return found._replace(text=f"≈ {band}")


def _ratio(row: Row) -> Cell:
    ratio, low, high = row["ratio"], row["low"], row["high"]
    if not units.has_value(ratio):
        return EMPTY
    text = "1" if ratio == 1 else factor(ratio, low, high)
    return Cell(text, none_if_nan(ratio), none_if_nan(low), none_if_nan(high))


def _state(value: float) -> Cell:
    return number(value, units.size) if units.has_value(value) else EMPTY
