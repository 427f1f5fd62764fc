"""How many times faster each series is than one of them, length by length."""

import numpy as np
import pandas as pd

from attnbench.analysis.crossover import differences, half_widths
from attnbench.analysis.ratios import Ratios


def speedup(summary: pd.DataFrame, baseline: str, ratios: Ratios | None = None) -> pd.DataFrame:
    """One row per case of the other series whose length both were timed at.

    Columns: series, mode, seq_len, ratio (time of `baseline` over time), low, high (95 %), paired.
    """
    found = []
    for (mode, series), rows in summary.groupby(["mode", "series"], sort=False):
        base = summary[(summary["mode"] == mode) & (summary["series"] == baseline)]
        if series == baseline or not len(base):
            continue
        logs = differences(base, rows, "time_s", ratios)
        factors = np.exp(half_widths(logs["se"], logs["df"]))
        found.append(
            pd.DataFrame(
                {
                    "series": series,
                    "mode": mode,
                    "seq_len": logs.index.astype(int),
                    "ratio": np.exp(logs["y"].to_numpy()),
                    "low": np.exp(logs["y"].to_numpy()) / factors,
                    "high": np.exp(logs["y"].to_numpy()) * factors,
                    "paired": logs["paired"].to_numpy(),
                }
            )
        )
    columns = ["series", "mode", "seq_len", "ratio", "low", "high", "paired"]
    found = [rows for rows in found if len(rows)]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=columns)
