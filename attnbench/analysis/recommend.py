"""The series of a sweep at one of its lengths: ranked, predicted, or excluded with the reason."""

from collections.abc import Iterable
from types import MappingProxyType

import numpy as np
import pandas as pd

from attnbench import units
from attnbench.analysis.report import Analysis
from attnbench.analysis.standings import Margin, Standings, groups
from attnbench.analysis.summary import MISSING
from attnbench.errors import UsageError
from attnbench.metrics import MEMORY, STATE, TABLE, TIME
from attnbench.records import Cause

MEASURED, PREDICTED = "measured", "predicted"  # where a time comes from
# the columns of times, and those that stand for them where a time is predicted
TIMES = MappingProxyType(dict(zip(TABLE[TIME].estimate[:3], TABLE[TIME].prediction, strict=True)))
CASE = ("mode", "sizes", "seq_len", "batch", "depth", "series")
COLUMNS = (*CASE, "rank", *TIMES, "ratio", "low", "high", MEMORY, STATE, "basis", "excluded")


def recommend(
    analysis: Analysis, seq_len: int, modes: Iterable[str], memory_bytes: float | None = None
) -> pd.DataFrame:
    """A row for each series at that length: those ranked, then predicted ones, then excluded ones.

    Each mode and each of several sizes (see `summary`) has a ranking of its own. Columns: mode,
    sizes, seq_len, batch, depth (layers that costs were divided by), series; rank from 1, which
    series that tie share, NaN unless ranked; time_s of the tokens of the sweep's batch (in decode,
    of a step) with its 95 % interval or band, time_lo_s to time_hi_s; ratio of the time to that of
    the first, with the simultaneous interval low to high; the peak in bytes, predicted where it was
    not measured; state_bytes; basis (`MEASURED`, `PREDICTED` or empty); excluded, the reason, or
    empty. `memory_bytes` limits the peak. Raises `UsageError` if the sweep lacks a mode or the
    length.
    """
    found = []
    for mode in modes:
        cases = analysis.cases[analysis.cases["mode"] == mode]
        if cases.empty:
            raise UsageError(f"--mode {mode!r}: the sweep measured {' and '.join(analysis.modes)}")
        if seq_len not in set(cases["seq_len"]):
            lengths = ", ".join(map(str, sorted(set(cases["seq_len"]))))
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
        for name, guess in TIMES.items()
    }
    basis = np.select([measured, predicted], [MEASURED, PREDICTED], "")
    return cases[[*CASE, STATE]].assign(**times, basis=basis, excluded=excluded, **{MEMORY: peak})


def _ranked(rows: pd.DataFrame, mode: str, seq_len: int, standings: Standings) -> pd.DataFrame:
    """The rows of one mode and sizes in order, with ranks and ratios."""

    def margin(a: str, b: str) -> Margin:
        return standings.margin(a, b, mode, seq_len)

    out = rows["excluded"] != ""
    level = groups([*rows.loc[~out & (rows["basis"] == MEASURED), "series"]], margin)
    ranked = [series for group in level for series in group]
    ranks = {series: 1 + ranked.index(group[0]) for group in level for series in group}
    order = rows["series"].map({series: place for place, series in enumerate(ranked)})
    rows = rows.assign(out=out, order=order, rank=rows["series"].map(ranks).astype(float))
    rows = rows.sort_values(["out", "order", TIME], kind="stable", ignore_index=True)
    over = (rows[TIME] / rows[TIME].iloc[0]).mask(rows["out"])
    margins = [Margin(factor=factor) for factor in over]
    for i, series in enumerate(ranked):
        margins[i] = margin(series, ranked[0]) if i else Margin.of(0.0, 0.0)
    ratios = {"ratio": [m.factor for m in margins], "low": [m.low for m in margins]}
    return rows.assign(**ratios, high=[m.high for m in margins])[[*COLUMNS]]
