"""The least time a case could take on this machine, and how far from it the measured one lies.

floor = max(FLOPs / peak FLOP/s, least bytes / peak bytes/s)

The peaks are those measured when a session began: a large matrix product of the sweep's numbers and
a large copy; of several sessions the fastest counts. FLOPs are matrix products alone, exact for the
forward pass; training counts three times as many, since each product has two in its backward pass.
That is exact where the inputs want gradients; a model's embedding wants none, so its first layer's
projections do a little less, and a form that computes scores again in its backward pass does more
than is counted. Least bytes are what no order of work avoids: parameters, inputs and outputs once;
in training also the two moments of Adam, and parameters and moments written back.

Arithmetic intensity is FLOPs over the bytes that operators moved, as counted in the memory pass:
operands and results of each, whether a cache held them or not. A point may therefore lie above the
slope of the roof: its operands came from a cache.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import pandas as pd

from attnbench.analysis.estimate import LEVEL, student_quantile
from attnbench.analysis.predict import TRAINING
from attnbench.records import ITEM_BYTES, Level, Mode, Sweep

ADAM = 6  # parameters and both moments, each read and written

CACHE = 4.0  # times as fast as a large copy: an input of some MiB may be read from a cache

FEWEST = 4  # lengths from which two rates and their error can be found
MIN_CHANGE = 0.3  # change of the core's share of FLOPs from which their rates can be told apart


class Bound(StrEnum):
    """What limits a case on the roofline."""

    PRODUCTS = "products"
    BYTES = "bytes"


@dataclass(frozen=True, kw_only=True)
class Roof:
    """Measured peaks: matrix products in FLOP/s, copying in bytes/s; bytes of one number."""

    flops_per_s: float
    bytes_per_s: float
    item_bytes: int = 4
    raised: bool = False  # to the best case, which did more than the peaks that were measured

    @property
    def ridge(self) -> float:
        """The intensity, FLOP per byte, above which products and not memory are the limit."""
        return self.flops_per_s / self.bytes_per_s


def roof(sweep: Sweep, summary: pd.DataFrame | None = None) -> Roof | None:
    """The peaks of the sweep's machine; None where none was measured.

    With its `summary`, no less than what the best of its cases did: peaks that are measured while
    the machine is busy come out too low.
    """
    if missing_peaks(sweep):
        return None
    flops = [session.matmul_flops for session in sweep.sessions if session.matmul_flops]
    copies = [session.copy_bytes for session in sweep.sessions if session.copy_bytes]
    item_bytes = ITEM_BYTES[sweep.request.dtype]
    found = Roof(flops_per_s=max(flops), bytes_per_s=max(copies), item_bytes=item_bytes)
    return found if summary is None else _raised(found, summary)


def _raised(roof: Roof, summary: pd.DataFrame) -> Roof:
    """The roof with each peak at what the fastest case needed of it, where that is more."""
    known = summary[summary["time_s"] > 0]
    known = known[~_impossible(roof, known)]
    if not len(known):
        return roof
    least = roof.item_bytes * least_numbers(known)
    flops = max(roof.flops_per_s, float((_work(known) / known["time_s"]).max()))
    moved = max(roof.bytes_per_s, float((least / known["time_s"]).max()))
    raised = (flops, moved) != (roof.flops_per_s, roof.bytes_per_s)
    return replace(roof, flops_per_s=flops, bytes_per_s=moved, raised=raised)


def _work(cases: pd.DataFrame) -> pd.Series:
    """FLOPs of a whole iteration."""
    passes = np.where(cases["mode"] == Mode.TRAINING, TRAINING, 1.0)
    return pd.Series(cases["flops"] * passes, cases.index)


def missing_peaks(sweep: Sweep) -> str:
    """Why there is no roof, or nothing."""
    sessions = sweep.sessions
    if not any(s.matmul_flops for s in sessions) or not any(s.copy_bytes for s in sessions):
        return "no session measured the peaks of the machine"
    if sweep.request.dtype not in ITEM_BYTES:
        return f"numbers of {sweep.request.dtype} are of unknown size"
    return ""


def roofline(summary: pd.DataFrame, roof: Roof) -> pd.DataFrame:
    """One row per timed case: work, roofline bound, and the time relative to it.

    Columns: series, mode, seq_len, flops (of the whole iteration), core_share (of them, that are
    the core's), floor_s (the bound), bound (a `Bound`), over (time over the floor, a factor, with
    low and high), intensity (FLOP per byte moved) and rate (FLOP/s achieved).
    """
    known = summary[summary["time_s"] > 0]
    work = _work(known)
    products_s = work / roof.flops_per_s
    bytes_s = roof.item_bytes * least_numbers(known) / roof.bytes_per_s
    floor = np.maximum(products_s, bytes_s)
    return known[["series", "mode", "seq_len"]].assign(
        flops=work,
        core_share=known["core_flops"] / known["flops"],
        floor_s=floor,
        bound=np.where(products_s >= bytes_s, Bound.PRODUCTS, Bound.BYTES),
        over=known["time_s"] / floor,
        low=known["time_lo_s"] / floor,
        high=known["time_hi_s"] / floor,
        intensity=work / known["moved_bytes"],
        rate=work / known["time_s"],
    )


def least_numbers(cases: pd.DataFrame) -> pd.Series:
    """Numbers of parameters, inputs and outputs, each moved once, and of Adam in training.

    A model reads one row of its embedding for each token; a core reads q, k and v.
    """
    tensors = cases["level"].map({Level.MODEL: 1, Level.ATTENTION: 2, Level.CORE: 4}).astype(float)
    parameters = np.where(cases["level"] == Level.CORE, 0, cases["parameters"])
    times = np.where(cases["mode"] == Mode.TRAINING, ADAM, 1)
    moved = times * parameters + tensors * cases["tokens"] * cases["width"]
    return pd.Series(moved, cases.index)


def too_fast(sweep: Sweep, summary: pd.DataFrame) -> list[str]:
    """Series with a time in which what goes into the mechanism could not even be read."""
    machine, timed = roof(sweep), summary[summary["time_s"] > 0]
    if machine is None or timed.empty:
        return []
    return list(dict.fromkeys(timed.loc[_impossible(machine, timed), "series"]))


def _impossible(machine: Roof, timed: pd.DataFrame) -> pd.Series:
    """Which cases took less time than reading the mechanism's input takes, caches allowed for."""
    tensors = np.where(timed["level"] == Level.CORE, 3, 1)
    read = machine.item_bytes * tensors * timed["tokens"] * timed["width"]
    below: pd.Series = timed["time_s"] < read / (CACHE * machine.bytes_per_s)
    return below


def rates(summary: pd.DataFrame) -> pd.DataFrame:
    """FLOP/s of the core and of all else apart, of each series whose lengths can tell them.

    Time is laid out as rest FLOPs over one rate plus core FLOPs over another, by least squares of
    relative errors over the lengths of one form. Only where the core's share of the FLOPs varies by
    `MIN_CHANGE` and both rates are surely above zero is there a row. Columns: series, form, mode,
    lengths, rest, rest_low, rest_high, core, core_low, core_high.
    """
    timed = summary[summary["time_s"] > 0]
    rows = []
    for (series, form, mode), cases in timed.groupby(["series", "form", "mode"], sort=False):
        if len(cases) >= FEWEST and np.ptp(cases["core_flops"] / cases["flops"]) >= MIN_CHANGE:
            work = (TRAINING if mode == Mode.TRAINING else 1.0) * _core_and_rest(cases)
            if (found := _rates(work, cases["time_s"].to_numpy(float))) is not None:
                rows.append((series, form, mode, len(cases), *found))
    ends = ["rest", "rest_low", "rest_high", "core", "core_low", "core_high"]
    return pd.DataFrame(rows, columns=["series", "form", "mode", "lengths", *ends])


def _core_and_rest(cases: pd.DataFrame) -> np.ndarray:
    """FLOPs of all but the core, and of the core: two columns."""
    return np.stack([cases["flops"] - cases["core_flops"], cases["core_flops"]], 1).astype(float)


def _rates(work: np.ndarray, times: np.ndarray) -> list[float] | None:
    """Both rates with their 95 % intervals, or None where an interval reaches zero."""
    scaled = work / times[:, None]
    inverse = np.linalg.pinv(scaled.T @ scaled)
    seconds = inverse @ scaled.T @ np.ones(len(times))  # of one FLOP
    df = len(times) - 2
    variance = float(np.sum((scaled @ seconds - 1) ** 2)) / df
    halves = student_quantile(LEVEL, df) * np.sqrt(variance * np.diag(inverse))
    if (seconds <= halves).any():
        return None
    ends = (seconds, seconds + halves, seconds - halves)
    return [float(1 / end[i]) for i in (0, 1) for end in ends]
