"""The series of a sweep at one of its lengths: ranked, predicted, or excluded with the reason."""

import math
from collections.abc import Iterable
from typing import Any

import pandas as pd

from attnbench import units
from attnbench.analysis.report import Analysis
from attnbench.analysis.standings import Margin, groups
from attnbench.analysis.summary import MISSING
from attnbench.errors import UsageError
from attnbench.metrics import MEMORY, STATE, TIME
from attnbench.records import Cause

MEASURED, PREDICTED = "measured", "predicted"  # where a time comes from
TIMES = (TIME, "time_lo_s", "time_hi_s")
RATIO = ("ratio", "low", "high")
CASE = ("mode", "sizes", "seq_len", "batch", "depth", "series")
COLUMNS = (*CASE, "rank", *TIMES, *RATIO, MEMORY, STATE, "basis", "excluded")


def recommend(
    analysis: Analysis, seq_len: int, mode: str, memory_bytes: float | None = None
) -> pd.DataFrame:
    """A row for each series at that length: those ranked, then predicted ones, then excluded ones.

    Each of several sizes (see `summary`) has a ranking of its own. Columns: mode, sizes, seq_len,
    batch, depth (layers that costs were divided by), series; rank from 1, which series that tie
    share, NaN unless ranked; time_s of the tokens of the sweep's batch (in decode, of a step) with
    its 95 % interval or band, time_lo_s to time_hi_s; ratio of the time to that of the first, with
    the simultaneous interval low to high; the peak in bytes, predicted where it was not measured;
    state_bytes; basis (`MEASURED`, `PREDICTED` or empty); excluded, the reason, or empty.
    `memory_bytes` limits the peak. Raises `UsageError` if the sweep lacks the mode or the length.
    """
    cases = analysis.cases
    own = cases[cases["mode"] == mode]
    if own.empty:
        raise UsageError(f"--mode {mode!r}: the sweep measured {' and '.join(analysis.modes)}")
    if seq_len not in set(own["seq_len"]):
        lengths = ", ".join(map(str, sorted(set(own["seq_len"]))))
        raise UsageError(
            f"--length {seq_len}: the sweep has {lengths} in {mode};"
            f" attnbench sweep --lengths {seq_len} measures another"
        )
    rows = own[own["seq_len"] == seq_len].to_dict("records")
    found = pd.DataFrame([_row(row, memory_bytes) for row in rows])
    blocks = [_ranked(block, analysis) for _, block in found.groupby("sizes", sort=False)]
    return pd.concat(blocks, ignore_index=True)


def recommend_each(
    analysis: Analysis, seq_len: int, modes: Iterable[str], memory_bytes: float | None = None
) -> pd.DataFrame:
    """The rows of `recommend` for several modes, one after the other."""
    found = [recommend(analysis, seq_len, str(mode), memory_bytes) for mode in modes]
    return pd.concat(found, ignore_index=True)


def _row(case: dict[Any, Any], memory_bytes: float | None) -> dict[str, Any]:
    """What is known of one case, not yet ranked."""
    measured = case[TIME] > 0
    # a prediction counts for a case that was not measured only for lack of time
    waits = not measured and (case["cause"] == Cause.BUDGET or case["outcome"] == MISSING)
    predicted = waits and case["refined_s"] > 0
    names = ("refined_s", "refined_lo_s", "refined_hi_s") if predicted else TIMES
    peak = case[MEMORY] if case[MEMORY] > 0 else case["refined_bytes"]
    excluded = case["suspect"]
    if not (excluded or measured or predicted):
        excluded = case["reason"] or case["outcome"]
    elif not excluded and memory_bytes is not None and not peak <= memory_bytes:
        known = units.has_value(peak)
        excluded = f"needs more than {units.size(memory_bytes)}" if known else "peak not known"
    times = (case[name] * case["batch_scale"] for name in names)
    return {
        **{name: case[name] for name in (*CASE, STATE)},
        **dict(zip(TIMES, times, strict=True)),
        MEMORY: peak,
        "basis": MEASURED if measured else PREDICTED if predicted else "",
        "excluded": excluded,
    }


def _ranked(rows: pd.DataFrame, analysis: Analysis) -> pd.DataFrame:
    """The rows in order, with ranks and ratios."""
    mode, seq_len = str(rows["mode"].iloc[0]), int(rows["seq_len"].iloc[0])
    chosen = rows["excluded"] == ""

    def margin(a: str, b: str) -> Margin:
        return analysis.standings.margin(a, b, mode, seq_len)

    measured = rows.loc[chosen & (rows["basis"] == MEASURED), "series"]
    level = groups([str(series) for series in measured], margin)
    order = [series for group in level for series in group]
    ranks = {series: 1 + order.index(group[0]) for group in level for series in group}
    places = {series: place for place, series in enumerate(order)}
    rows = rows.assign(
        rank=rows["series"].map(ranks).astype(float),
        place=rows["series"].map(places).astype(float),
        out=~chosen,
    ).sort_values(["out", "place", TIME], kind="stable", ignore_index=True)
    first, fastest = str(rows["series"].iloc[0]), rows[TIME].iloc[0]
    margins = [
        margin(row["series"], first)
        if row["series"] in order
        else Margin(factor=math.nan if row["out"] else row[TIME] / fastest)
        for row in rows.to_dict("records")
    ]
    if order:
        margins[0] = Margin.of(0.0, 0.0)
    against = pd.DataFrame([(m.factor, m.low, m.high) for m in margins], columns=[*RATIO])
    return pd.concat([rows, against], axis="columns")[[*COLUMNS]]
