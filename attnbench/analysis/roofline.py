"""How near each case comes to what this machine can do: two columns of the cases.

over_bound = time / max(FLOPs / peak FLOP/s, least bytes / peak bytes/s)
peak_share = FLOPs / peak FLOP/s / time

The peaks are measured when a session begins: a large matrix product in the number type and a large
copy. Of several sessions the fastest counts, and the best case where it reached more, since peaks
measured on a busy machine are too low. FLOPs are those of matrix products alone, exact for the
forward pass; training counts three times as many, since each product has two in its backward pass.
That is exact where the inputs need gradients; the embedding of a model needs none, so the
projections of the first layer do slightly less, and a form that recomputes scores in its backward
pass does more than is counted. Least bytes are those that no implementation avoids: parameters,
inputs and outputs once; in training also the two moments of Adam, and parameters and moments
written back; in decode the state instead of all tokens but one.

Of fused attention that multiplies float32 on tensor cores, each number split in two, no peak is
known, and so no bound.
"""

import numpy as np
import pandas as pd

from attnbench.records import ITEM_BYTES, SPLIT, Level, Sweep, modes

CACHE = 4.0  # bandwidth of a cache, which can hold an input of a few MiB, over a large copy's


def with_bounds(cases: pd.DataFrame, sweep: Sweep) -> pd.DataFrame:
    """The cases with over_bound and peak_share; NaN where a time, count or peak is unknown."""
    if cases.empty:
        return cases
    time = cases["time_s"]
    passes = cases["mode"].map(lambda mode: modes.find(mode).forward_passes).astype(float)
    work = (passes * cases["flops"]).mask(cases["arithmetic"] == SPLIT)
    least = least_bytes(cases)
    peak = _peaks(cases["dtype"], sweep)
    copy = _copy_bytes(sweep)
    possible = ~_impossible(cases, sweep)
    best = (work / time).where(possible).groupby(cases["dtype"]).transform("max")
    products_s = work / peak.where(~(best > peak), best)
    copy = max(copy, (least / time).where(possible).max())  # what is unknown stays so
    over_bound = time / np.maximum(products_s, least / copy)
    return cases.assign(over_bound=over_bound, peak_share=products_s / time)


def _peaks(dtypes: pd.Series, sweep: Sweep) -> pd.Series:
    """The measured FLOP/s of products in the number type of each case, NaN if unknown."""
    first = {sweep.request.dtype: [s.matmul_flops for s in sweep.sessions]}
    by_dtype = {d: [s.peaks.get(d) for s in sweep.sessions] + first.get(d, []) for d in set(dtypes)}
    best = {dtype: max(filter(None, rates), default=np.nan) for dtype, rates in by_dtype.items()}
    return dtypes.map(best).astype(float)


def _copy_bytes(sweep: Sweep) -> float:
    """The measured bytes/s of a large copy, NaN if unknown."""
    return max((s.copy_bytes for s in sweep.sessions if s.copy_bytes), default=np.nan)


def _item_bytes(cases: pd.DataFrame) -> pd.Series:
    """The bytes of a number of each case, NaN if unknown."""
    return cases["dtype"].map(ITEM_BYTES).astype(float)


def least_bytes(cases: pd.DataFrame) -> pd.Series:
    """Bytes of parameters, inputs and outputs, moved once; with Adam in training.

    A model reads one row of its embedding for each token; a core reads q, k and v. A step of
    decoding reads its state.
    """
    tensors = cases["level"].map({Level.MODEL: 1, Level.ATTENTION: 2, Level.CORE: 4}).astype(float)
    parameters = cases["parameters"].where(cases["level"] != Level.CORE, 0)
    times = cases["mode"].map(lambda mode: modes.find(mode).parameter_moves).astype(int)
    moved = times * parameters + tensors * cases["outputs"] * cases["width"]
    return _item_bytes(cases) * moved + cases["state_bytes"].fillna(0)


def too_fast(cases: pd.DataFrame, sweep: Sweep) -> list[str]:
    """Series with a time too short for reading the input of the mechanism."""
    return [] if cases.empty else [*cases.loc[_impossible(cases, sweep), "series"].unique()]


def _impossible(cases: pd.DataFrame, sweep: Sweep) -> pd.Series:
    """Which cases took less time than reading the mechanism's input, even from a cache."""
    tensors = np.where(cases["level"] == Level.CORE, 3, 1)
    read = _item_bytes(cases) * tensors * cases["outputs"] * cases["width"]
    below: pd.Series = cases["time_s"] < read / (CACHE * _copy_bytes(sweep))
    return below
