"""What to choose at one length: a sentence and a ranking."""

from typing import Any

from attnbench import units
from attnbench.analysis.recommend import PREDICTED
from attnbench.analysis.summary import Frame, Row
from attnbench.metrics import MEMORY, TABLE, TIME
from attnbench.records import Level, Request
from attnbench.render.answers import in_order
from attnbench.render.cost_tables import counted, factor, milliseconds, per_layer
from attnbench.render.grid import EMPTY, Cell, Column, Table, none_if_nan, number, table
from attnbench.render.styles import labels

MOST = 3  # predicted series that a sentence names


def recommended(advice: Frame, memory_bytes: float | None = None) -> str:
    """`At N = 4,096 in inference: Fastformer, 1.18× [1.02, 1.36] as fast as Linformer.`"""
    names = labels(advice["series"])
    fits = "" if memory_bytes is None else f" that fits into {units.size(memory_bytes)}"
    chosen = advice[advice["excluded"] == ""]
    ranked, predicted = chosen[chosen["rank"] > 0], chosen[chosen["basis"] == PREDICTED]
    said = _best(ranked, names) if len(ranked) else f"nothing{fits} was measured"
    if len(ranked):  # without those whose band lies above the time of the first
        predicted = predicted[~(predicted["time_lo_s"] > ranked[TIME].iloc[0])]
    guesses = [_guess(row, names) for row in predicted.head(MOST).to_dict("records")]
    if guesses:
        more = f" and {len(predicted) - MOST} more" * (len(predicted) > MOST)
        kind = "not measured, and may be faster" if len(ranked) else f"predicted{fits}"
        said += f"; {kind}: {', '.join(guesses)}{more}"
    return f"At N = {units.count(advice['seq_len'].iloc[0])} in {advice['mode'].iloc[0]}: {said}."


def _best(ranked: Frame, names: dict[str, str]) -> str:
    """Who leads, and by how much."""
    labels = [names[series] for series in ranked["series"]]
    if len(labels) == 1:
        return f"{labels[0]} is the only one that was measured and is not excluded"
    ratio, low, high = ranked[["ratio", "low", "high"]].iloc[1]
    if not units.has_value(low):
        return f"{labels[0]} took the least time; after one round no difference is certain"
    ties = labels[: int((ranked["rank"] == 1).sum())]
    if len(ties) > 1:
        return f"{in_order(ties)} tie"
    return f"{labels[0]}, {factor(ratio, low, high)} as fast as {labels[1]}"


def _guess(row: dict[Any, Any], names: dict[str, str]) -> str:
    """`Fastformer 306 ms [210 ms, 420 ms]`; without a band if there is none."""
    text, *ends = (units.seconds(row[name]) for name in TABLE[TIME].estimate[:3])
    known = units.has_value(row["time_lo_s"])
    return f"{names[row['series']]} {units.interval(text, *ends) if known else text}"


def ranking(advice: Frame, request: Request) -> Table:
    """A row for each series, in the order of `recommend`; `request` is that of the sweep."""

    def ratio(row: Row) -> Cell:
        point, low, high = row["ratio"], row["low"], row["high"]
        text = "1" if point == 1 else factor(point, low, high)
        return Cell(text, point, none_if_nan(low), none_if_nan(high)) if point > 0 else EMPTY

    model = "the model of this sweep" if request.level is Level.MODEL else "one layer"
    seq_len, mode = units.count(advice["seq_len"].iloc[0]), advice["mode"].iloc[0]
    return table(
        advice.to_dict("records"),
        [
            Column.words("Mechanism", "series"),
            Column("Rank", lambda row: number(row["rank"], units.count)),
            Column("Time, ms", lambda row: milliseconds(row) if row[TIME] > 0 else EMPTY),
            Column("Ratio to the first", ratio),
            Column("Peak, MiB", lambda row: counted(row[MEMORY] / units.MIB)),
            Column.words("Basis", "basis"),
            Column.words("Excluded", "excluded"),
        ],
        name=f"ranking_{mode}",
        title=f"Ranking at N = {seq_len}, {mode}{per_layer(advice)}",
        note="Times have 95 % confidence intervals, predicted ones bands and no rank; those of"
        " ratios are simultaneous, and series that tie share a rank. Peaks, and so --memory, are of"
        f" this one case, {model} with a batch of {units.count(advice['batch'].max())}: not of a"
        " whole language model.",
    )
