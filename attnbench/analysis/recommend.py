"""The series of a sweep at one of its lengths: ranked, predicted, or excluded with the reason."""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from attnbench import units
from attnbench.analysis.report import Analysis
from attnbench.analysis.standings import Standings, groups
from attnbench.analysis.summary import MISSING
from attnbench.errors import UsageError
from attnbench.metrics import MEMORY, TABLE, TIME
from attnbench.records import Cause

MEASURED, PREDICTED = "measured", "predicted"  # where a time comes from


def recommend(
    analysis: Analysis, seq_len: int, modes: Iterable[str], memory_bytes: float | None = None
) -> pd.DataFrame:
    """A row for each series at that length: those ranked, then predicted ones, then excluded ones.

    Each mode and each of several sizes has a ranking of its own. Columns: those of `summary` for
    mode, sizes, seq_len, batch, depth, series, the peak in bytes (predicted where it was not
    measured) and the time of the tokens of the sweep's batch (in decode, of a step) with its 95 %
    interval or band; rank from 1, which series that tie share, NaN unless ranked; ratio of the time
    to that of the first, with the simultaneous interval low to high; basis (`MEASURED`, `PREDICTED`
    or empty); excluded, the reason, or empty. `memory_bytes` limits the peak. Raises `UsageError`
    if the sweep lacks the length in a mode.
    """
    found = []
    for mode in modes:
        cases = analysis.cases[analysis.cases["mode"] == mode]
        if seq_len not in set(cases["seq_len"]):
            lengths = ", ".join(map(str, sorted(set(cases["seq_len"])))) or "no length"
            raise UsageError(
                f"--length {seq_len}: the sweep has {lengths} in {mode};"
                f" attnbench sweep --lengths {seq_len} measures another"
            )
        rows = _judged(cases[cases["seq_len"] == seq_len], memory_bytes)
        sizes = rows.groupby("sizes", sort=False)
        found += [_ranked(block, str(mode), seq_len, analysis.standings) for _, block in sizes]
    return pd.concat(found, ignore_index=True)


def _judged(cases: pd.DataFrame, memory_bytes: float | None) -> pd.DataFrame:
    """What is known of each case, and why it is excluded, not yet ranked."""
    measured = cases[TIME] > 0
    # a prediction counts for a case that was not measured only for lack of time
    waits = (cases["cause"] == Cause.BUDGET) | (cases["outcome"] == MISSING)
    predicted = ~measured & waits & (cases["predicted_s"] > 0)
    peak = cases[MEMORY].where(cases[MEMORY] > 0, cases["predicted_bytes"])
    ended = cases["reason"].where(cases["reason"] != "", cases["outcome"])
    excluded = cases["suspect"].mask((cases["suspect"] == "") & ~measured & ~predicted, ended)
    if memory_bytes is not None:
        large = f"needs more than {units.size(memory_bytes)}"
        why = pd.Series(np.where(peak.notna(), large, "peak not known"), cases.index)
        excluded = excluded.mask((excluded == "") & ~(peak <= memory_bytes), why)
    times = {
        name: cases[name].where(~predicted, cases[guess]) * cases["batch_scale"]
        for name, guess in zip(TABLE[TIME].estimate[:3], TABLE[TIME].prediction, strict=True)
    }
    basis = np.select([measured, predicted], [MEASURED, PREDICTED], "")
    of_case = cases[["mode", "sizes", "seq_len", "batch", "depth", "series"]]
    return of_case.assign(**times, **{MEMORY: peak}, basis=basis, excluded=excluded)


def _ranked(rows: pd.DataFrame, mode: str, seq_len: int, standings: Standings) -> pd.DataFrame:
    """The rows of one mode and sizes in order, with ranks and ratios."""
    chosen = rows[(rows["excluded"] == "") & (rows["basis"] == MEASURED)]
    level = groups([*chosen["series"]], lambda a, b: standings.margin(a, b, mode, seq_len))
    order = [series for group in level for series in group]
    ranks = {series: 1.0 + order.index(group[0]) for group in level for series in group}
    place = rows["series"].map({series: i for i, series in enumerate(order)})
    rows = rows.assign(place=place, out=rows["excluded"] != "", rank=rows["series"].map(ranks))
    rows = rows.sort_values(["out", "place", TIME], kind="stable", ignore_index=True)
    over = (rows[TIME] / rows[TIME].iloc[0]).mask(rows["out"])
    rows = rows.assign(ratio=over, low=np.nan, high=np.nan)
    for i, series in enumerate(order):
        margin = standings.margin(series, order[0], mode, seq_len)
        ends = (margin.factor, margin.low, margin.high) if i else (1.0, 1.0, 1.0)
        rows.loc[i, ["ratio", "low", "high"]] = ends
    return rows.drop(columns=["place", "out"])
