"""The least time that a case could take on this machine, and the measured time relative to it.

floor = max(FLOPs / peak FLOP/s, least bytes / peak bytes/s)

The peaks are measured when a session begins: a large matrix product in the dtype of the sweep and a
large copy; of several sessions the fastest counts. FLOPs are those of matrix products alone, exact
for the forward pass; training counts three times as many, since each product has two in its
backward pass. That is exact where the inputs need gradients; the embedding of a model needs none,
so the projections of the first layer do slightly less, and a form that recomputes scores in its
backward pass does more than is counted. Least bytes are those that no implementation avoids:
parameters, inputs and outputs once; in training also the two moments of Adam, and parameters and
moments written back; in decode the state instead of all tokens but one.

On a GPU, fused attention in float32 may multiply on tensor cores, each number split in two. The
bound of such a core is a third of the rate of products with TF32 allowed.

Arithmetic intensity is FLOPs over the bytes that operators moved, as counted in the memory pass:
operands and results of each operator, cached or not. A point may therefore lie above the slope of
the roof if its operands came from a cache.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import pandas as pd

from attnbench import modes
from attnbench.records import ITEM_BYTES, SPLIT, Level, Sweep
from attnbench.statistics.estimate import LEVEL, student_quantile

CACHE = 4.0  # bandwidth of a cache, which can hold an input of a few MiB, over that of a large copy

SPLIT_PRODUCTS = 3  # for each product of numbers split in two
SHARES = ("flops_share", "bytes_share", "nominal_flops_share", "nominal_bytes_share")

FEWEST = 4  # lengths for fitting two rates and their errors
ROOM = 1.4  # from the outermost points to the ends of the outline, as a factor
MIN_CHANGE = 0.3  # least change of the core's share of FLOPs that separates the two rates


class Bound(StrEnum):
    """The resource that limits a case on the roofline."""

    PRODUCTS = "products"
    BYTES = "bytes"


@dataclass(frozen=True, kw_only=True)
class Roof:
    """Measured peaks: matrix products in FLOP/s, copying in bytes/s; bytes of one number."""

    flops_per_s: float
    bytes_per_s: float
    item_bytes: int = 4
    raised: bool = False  # to the best case, which exceeded the measured peaks
    split_flops_per_s: float = 0.0  # of products of numbers that are split in two; 0: unknown

    @property
    def ridge(self) -> float:
        """The intensity in FLOP per byte above which products, not memory, are the limit."""
        return self.flops_per_s / self.bytes_per_s

    def outline(self, points: pd.DataFrame) -> tuple[list[float], list[float]]:
        """The roof above these rows of `roofline`: intensities, with the ridge, and FLOP/s."""
        low = min(points["intensity"].min(), self.ridge) / ROOM
        high = max(points["intensity"].max(), self.ridge) * ROOM
        corners = [float(low), self.ridge, float(high)]
        return corners, [min(self.flops_per_s, x * self.bytes_per_s) for x in corners]


def roof(sweep: Sweep, summary: pd.DataFrame | None = None) -> Roof | None:
    """The peaks of the sweep's machine; None if not measured.

    With `summary`, at least what the best case achieved, since peaks measured on a busy machine are
    too low.
    """
    if missing_peaks(sweep):
        return None
    measured = Roof(
        flops_per_s=max(session.matmul_flops or 0.0 for session in sweep.sessions),
        bytes_per_s=max(session.copy_bytes or 0.0 for session in sweep.sessions),
        item_bytes=ITEM_BYTES[sweep.request.dtype],
        split_flops_per_s=max(s.peaks.get("tf32", 0.0) for s in sweep.sessions) / SPLIT_PRODUCTS,
    )
    return measured if summary is None else _raised(measured, summary)


def _raised(roof: Roof, summary: pd.DataFrame) -> Roof:
    """The roof with each peak raised to what the fastest case achieved, where that is more."""
    known = summary[summary["time_s"] > 0]
    known = known[~_impossible(roof, known)]
    if not len(known):
        return roof
    least = least_bytes(known, roof.item_bytes)
    alone = known[~_splits(known)]  # others do more than products in one type can
    best = (_work(alone) / alone["time_s"]).max() if len(alone) else 0.0
    flops = max(roof.flops_per_s, float(best))
    moved = max(roof.bytes_per_s, float((least / known["time_s"]).max()))
    raised = (flops, moved) != (roof.flops_per_s, roof.bytes_per_s)
    return replace(roof, flops_per_s=flops, bytes_per_s=moved, raised=raised)


def _work(cases: pd.DataFrame) -> pd.Series:
    """FLOPs of an iteration, in all its passes."""
    passes = cases["mode"].map(lambda mode: modes.find(mode).forward_passes).astype(float)
    return pd.Series(cases["flops"] * passes, cases.index)


def _splits(cases: pd.DataFrame) -> pd.Series:
    """Which cases multiply float32 as numbers split in two."""
    return pd.Series(cases.get("arithmetic", "") == SPLIT, cases.index)


def _products_s(cases: pd.DataFrame, roof: Roof) -> pd.Series:
    """Seconds of an iteration's products at peak rate, of the core at that of its arithmetic."""
    work, core = _work(cases), cases["core_flops"] / cases["flops"]
    rate = max(roof.flops_per_s, roof.split_flops_per_s)
    split_s = work * ((1 - core) / roof.flops_per_s + core / rate)
    return (work / roof.flops_per_s).where(~_splits(cases), split_s)


def with_shares(cases: pd.DataFrame, sweep: Sweep) -> pd.DataFrame:
    """The cases with FLOP/s and bytes/s as shares of measured and of nominal peaks, if known.

    The columns are `SHARES`; NaN where a number is unknown. A share of bytes may exceed 1, where
    operands came from a cache.
    """
    if cases.empty:
        return cases
    dtype, sessions = sweep.request.dtype, sweep.sessions
    least = least_bytes(cases, ITEM_BYTES.get(dtype, 0))
    flops, moved = _work(cases), cases["moved_bytes"].fillna(least)
    peaks = (
        (flops, [session.matmul_flops for session in sessions]),
        (moved, [session.copy_bytes for session in sessions]),
        (flops, [session.nominal.get(dtype) for session in sessions]),
        (moved, [session.nominal.get("copy") for session in sessions]),
    )
    shares = {
        name: work / cases["time_s"] / max((rate for rate in rates if rate), default=np.nan)
        for name, (work, rates) in zip(SHARES, peaks, strict=True)
    }
    return cases.assign(**shares)


def missing_peaks(sweep: Sweep) -> str:
    """Why there is no roof, or nothing."""
    sessions = sweep.sessions
    if not any(s.matmul_flops for s in sessions) or not any(s.copy_bytes for s in sessions):
        return "no session measured the peaks of the machine"
    if sweep.request.dtype not in ITEM_BYTES:
        return f"the size of {sweep.request.dtype} is unknown"
    return ""


def roofline(summary: pd.DataFrame, roof: Roof) -> pd.DataFrame:
    """One row per timed case of known work: its work, roofline bound, and the time relative to it.

    Columns: series, mode, seq_len, flops (of the whole iteration), core_share (of these FLOPs),
    floor_s (the bound), bound (a `Bound`), over (time over the bound, with low and high),
    intensity (FLOP per byte moved, NaN unless both were counted) and rate (FLOP/s achieved).
    """
    known = summary[summary["time_s"] > 0]
    work = _work(known)
    products_s = _products_s(known, roof)
    bytes_s = least_bytes(known, roof.item_bytes) / roof.bytes_per_s
    floor = np.maximum(products_s, bytes_s)
    rows = known[["series", "mode", "seq_len"]].assign(
        flops=work,
        core_share=known["core_flops"] / known["flops"],
        floor_s=floor,
        bound=np.where(products_s >= bytes_s, Bound.PRODUCTS, Bound.BYTES),
        over=known["time_s"] / floor,
        low=known["time_lo_s"] / floor,
        high=known["time_hi_s"] / floor,
        intensity=(work / known["moved_bytes"]).where((work > 0) & (known["moved_bytes"] > 0)),
        rate=work / known["time_s"],
    )
    return rows.dropna(subset=["floor_s"])


def least_bytes(cases: pd.DataFrame, item_bytes: int) -> pd.Series:
    """Bytes of parameters, inputs and outputs, moved once; with Adam in training.

    A model reads one row of its embedding for each token; a core reads q, k and v. A step of
    decoding reads its state.
    """
    tensors = cases["level"].map({Level.MODEL: 1, Level.ATTENTION: 2, Level.CORE: 4}).astype(float)
    parameters = np.where(cases["level"] == Level.CORE, 0, cases["parameters"])
    times = cases["mode"].map(lambda mode: modes.find(mode).parameter_moves).astype(int)
    moved = times * parameters + tensors * cases["outputs"] * cases["width"]
    return pd.Series(item_bytes * moved, cases.index) + cases["state_bytes"].fillna(0)


def too_fast(sweep: Sweep, summary: pd.DataFrame) -> list[str]:
    """Series with a time too short for reading the input of the mechanism."""
    machine, timed = roof(sweep), summary[summary["time_s"] > 0]
    if machine is None or timed.empty:
        return []
    return list(dict.fromkeys(timed.loc[_impossible(machine, timed), "series"]))


def _impossible(machine: Roof, timed: pd.DataFrame) -> pd.Series:
    """Which cases took less time than reading the mechanism's input, even from a cache."""
    tensors = np.where(timed["level"] == Level.CORE, 3, 1)
    read = machine.item_bytes * tensors * timed["outputs"] * timed["width"]
    below: pd.Series = timed["time_s"] < read / (CACHE * machine.bytes_per_s)
    return below


def rates(summary: pd.DataFrame) -> pd.DataFrame:
    """FLOP/s of the core and of the rest, for each series along which they can be separated.

    Time is modelled as rest FLOPs over one rate plus core FLOPs over another, by least squares of
    relative errors over the lengths of one form. A series has a row only if the core's share of the
    FLOPs varies by `MIN_CHANGE` and both confidence intervals exclude zero. Columns: series, form,
    mode, lengths, rest, rest_low, rest_high, core, core_low, core_high.
    """
    timed = summary[summary["time_s"] > 0]
    rows = []
    for (series, form, mode), cases in timed.groupby(["series", "form", "mode"], sort=False):
        if len(cases) >= FEWEST and np.ptp(cases["core_flops"] / cases["flops"]) >= MIN_CHANGE:
            parts = (cases["flops"] - cases["core_flops"], cases["core_flops"])
            work = modes.find(str(mode)).forward_passes * np.stack(parts, 1).astype(float)
            if (fitted := _rates(work, cases["time_s"].to_numpy(float))) is not None:
                rows.append((series, form, mode, len(cases), *fitted))
    ends = ["rest", "rest_low", "rest_high", "core", "core_low", "core_high"]
    return pd.DataFrame(rows, columns=["series", "form", "mode", "lengths", *ends])


def _rates(work: np.ndarray, times: np.ndarray) -> list[float] | None:
    """Both rates with 95 % confidence intervals, from FLOPs [K, 2]; None if one reaches zero."""
    scaled = work / times[:, None]
    inverse = np.linalg.pinv(scaled.T @ scaled)
    seconds = inverse @ scaled.T @ np.ones(len(times))  # per FLOP
    df = len(times) - 2
    variance = float(np.sum((scaled @ seconds - 1) ** 2)) / df
    halves = student_quantile(LEVEL, df) * np.sqrt(variance * np.diag(inverse))
    if (seconds <= halves).any():
        return None
    ends = (seconds, seconds + halves, seconds - halves)
    return [float(1 / end[i]) for i in (0, 1) for end in ends]
