"""The series of a sweep at one of its lengths: ranked, or without a rank for a reason."""

from dataclasses import astuple

import pandas as pd

from attnbench import units
from attnbench.analysis.report import Analysis
from attnbench.analysis.suspects import SHOWS_LAUNCHES
from attnbench.errors import UsageError
from attnbench.metrics import MEMORY, TIME
from attnbench.records import MISSING, Cause


def recommend(analysis: Analysis, seq_len: int, memory_bytes: float | None = None) -> pd.DataFrame:
    """The rows of `summary` at that length: by rank in each mode and sizes, then all others.

    `memory_bytes` limits the peak, measured or predicted. Added: rank from 1, shared by ties; ratio
    of the time to the first one's, with its simultaneous interval low to high; excluded, why,
    empty where only time was lacking. Raises `UsageError` if the sweep lacks the length.
    """
    cases = analysis.cases[analysis.cases["seq_len"] == seq_len]
    if cases.empty:
        known = units.few(analysis.answers.lengths, most=20)
        raise UsageError(f"the sweep has no length {seq_len}; it has {known}")
    late = (cases["cause"] == Cause.BUDGET) | (cases["outcome"] == MISSING)
    excluded = cases["suspect"].mask(cases[TIME].isna() & ~late, cases["reason"])
    excluded = excluded.mask(cases["shows_launches"] & (excluded == ""), SHOWS_LAUNCHES)
    peak = cases[MEMORY].fillna(cases["predicted_bytes"])
    if memory_bytes is not None:
        why = f"not known to fit into {units.size(memory_bytes)}"
        excluded = excluded.mask((excluded == "") & ~(peak <= memory_bytes), why)
    rows, cases = [], cases.assign(**{MEMORY: peak}, excluded=excluded)
    for (mode, _), block in cases.groupby(["mode", "sizes"], sort=False):
        chosen = block[(block["excluded"] == "") & (block[TIME] > 0)]
        places = analysis.standings.places([*chosen["series"]], str(mode), seq_len)
        ranks = [(p.series, p.rank, *astuple(p.margin)) for p in places]
        ranked = pd.DataFrame(ranks, columns=["series", "rank", "ratio", "low", "high"])
        rows += [ranked.merge(block), block.drop(chosen.index).sort_values(["excluded", TIME])]
    return pd.concat(rows, ignore_index=True)
