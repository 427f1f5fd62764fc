"""What to choose at one length: a sentence and a ranking."""

from collections.abc import Iterator
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
    return " ".join(_sentences(advice, labels_of(advice["series"]), memory_bytes))


def _sentences(advice: Frame, names: dict[str, str], memory_bytes: float | None) -> Iterator[str]:
    at = f"At N = {units.count(advice['seq_len'].iloc[0])} in {advice['mode'].iloc[0]}"
    fits = "can be ranked" if memory_bytes is None else f"fits into {units.size(memory_bytes)}"
    chosen = advice[advice["excluded"] == ""]
    ranked, predicted = chosen[chosen["rank"] > 0], chosen[chosen["basis"] == PREDICTED]
    if len(ranked):
        yield f"{at}: {_best(ranked, names)}."
        # whose band does not lie above the time of the first
        predicted = predicted[~(predicted["time_lo_s"] > ranked[TIME].iloc[0])]
    elif (advice["basis"] == MEASURED).any():
        yield f"{at}: nothing that was measured {fits}."
    else:
        yield f"{at}: nothing was measured."
    if len(predicted):
        shown = [_predicted(row, names) for row in predicted.head(MOST).to_dict("records")]
        more = f" and {len(predicted) - MOST} more" * (len(predicted) > MOST)
        known = "Predicted to fit" if memory_bytes is not None else "Predicted"
        rivals = "Not measured, and may be faster" if len(ranked) else known
        yield f"{rivals}: {', '.join(shown)}{more}."
    elif ranked.empty and (advice["basis"] == PREDICTED).any():
        yield f"Nothing that was predicted {fits}."


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
        Column("State", lambda row: number(row[STATE], units.size)),
        Column.words("Basis", "basis"),
        Column("Excluded", lambda row: words(row["excluded"] or units.NOTHING)),
    ]
    rows, empty = advice.to_dict("records"), ("", units.NOTHING)
    work = "one step" if find(mode).steps else f"a batch of {batch(advice, request.batch_tokens)}"
    model = "the model of this sweep" if request.level is Level.MODEL else "one layer"
    prompts = "" if mode in PASSES else ", prompts that ran included"
    guessed = " “≈” marks what is predicted, with a 95 % band and without a rank."
    return table(
        rows,
        [c for c in columns if any(c.cell(row).text not in empty for row in rows)],
        name=f"ranking_{mode}",
        title=f"Ranking at N = {seq_len}, {mode}{per_layer(advice)}",
        note=f"Times are of {work}, with 95 % confidence intervals, those of ratios simultaneous;"
        f" series that tie share a rank.{guessed * (PREDICTED in {*advice['basis']})} Peaks, and so"
        f" --memory, are of this one case, {model} with a batch of"
        f" {units.count(advice['batch'].max())}{prompts}: not of a whole language model.",
    )


def _time(row: Row) -> Cell:
    if row["basis"] != PREDICTED:
        return milliseconds(row) if units.has_value(row[TIME]) else EMPTY
    found = milliseconds(row) if row["time_hi_s"] > 0 else number(1e3 * row[TIME])
    return found._replace(text=f"≈ {found.text}")


def _ratio(row: Row) -> Cell:
    ratio, low, high = row["ratio"], row["low"], row["high"]
    text = "1" if ratio == 1 else factor(ratio, low, high)
    return Cell(text, ratio, none_if_nan(low), none_if_nan(high)) if ratio > 0 else EMPTY
