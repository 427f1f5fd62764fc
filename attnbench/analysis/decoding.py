"""Decoding at a glance: what a step takes, and what is kept, at the longest context measured."""

import numpy as np
import pandas as pd

from attnbench.records import Mode


def decoding(cases: pd.DataFrame) -> pd.DataFrame:
    """One row per series that was decoded, at its longest length with a step and a state.

    `cases` are those of `summary`. Columns: those of the case, and token_bytes, by how much the
    state of a sequence grows with a token: the slope between the two longest lengths, NaN if there
    is only one.
    """
    known = cases[(cases["mode"] == Mode.DECODE) & cases["time_s"].notna()]
    known = known[known["state_bytes"].notna()].sort_values("seq_len", kind="stable")
    own = known["state_bytes"] / known["batch"]
    series = known["series"]
    grown = own.groupby(series).diff() / known["seq_len"].groupby(series).diff()
    longest = known.assign(token_bytes=grown.astype(float)).groupby("series", sort=False).tail(1)
    order = {name: i for i, name in enumerate(dict.fromkeys(cases["series"]))}
    return longest.sort_values("series", key=lambda names: names.map(order).astype(np.int64))
