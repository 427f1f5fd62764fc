"""The series of a sweep ranked at one length and mode, measured there or between two lengths.

Between two measured lengths the time of a token is interpolated linearly in log–log, and so are the
ratios of two series with their intervals: errors of the two lengths may share a process, so half
the interval is the weighted mean of both halves, which is conservative. A cost that was not
measured is predicted from all that was, with a band, and is not ranked.
"""

import math
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import pandas as pd

from attnbench import units
from attnbench.analysis.standings import UNKNOWN, Margin, Standings, groups
from attnbench.analysis.summary import MISSING
from attnbench.errors import UsageError
from attnbench.metrics import MEMORY, STATE, TIME
from attnbench.records import PASSES, Cause

SUSPECT = "suspect"  # in place of an `Outcome`, for a series that does not do its work


class Basis(StrEnum):
    """Where a time comes from."""

    MEASURED = "measured"
    BETWEEN = "interpolated"
    PREDICTED = "predicted"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A candidate series; its time is that of the tokens of a batch.

    `rank` counts from 1; series that tie share it, predicted ones have none. `margin` is the
    time over that of the first, with its simultaneous interval.
    """

    series: str
    rank: int | None
    basis: Basis
    lengths: tuple[int, ...]  # where the time was measured or predicted: one, or two around it
    seconds: float
    low: float  # 95 % confidence interval, or band of a prediction; NaN where unknown
    high: float
    margin: Margin
    peak_bytes: float  # NaN where unknown
    state_bytes: float  # what decoding keeps; NaN in other modes


@dataclass(frozen=True, kw_only=True)
class Excluded:
    """A series that cannot be chosen: what ended it, and the reason as the sweep recorded it."""

    series: str
    ending: str  # a `Cause`, an `Outcome`, "missing" or "suspect"; empty: over the memory limit
    reason: str
    peak_bytes: float


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """The series at one mode and length: those to choose from, the best first, and the others."""

    mode: str
    seq_len: int
    tokens: int | None  # of the batch that times refer to; None: a step, or the sweep's batch
    memory_bytes: float | None
    choices: tuple[Choice, ...]
    excluded: tuple[Excluded, ...]


def recommend(
    cases: pd.DataFrame,
    standings: Standings,
    tokens: int | None,
    seq_len: int,
    mode: str,
    memory_bytes: float | None = None,
) -> Recommendation:
    """The ranking from the summary of a sweep; `memory_bytes` limits the allocated peak.

    Raises `UsageError` if the sweep lacks the mode, or `seq_len` is outside its lengths.
    """
    own = cases[cases["mode"] == mode]
    modes = dict.fromkeys(cases["mode"])
    if not len(own):
        raise UsageError(f"--mode {mode!r}: the sweep measured {' and '.join(modes)}")
    lengths = sorted(set(map(int, own["seq_len"])))
    if not lengths[0] <= seq_len <= lengths[-1]:
        nearest = lengths[0] if seq_len < lengths[0] else lengths[-1]
        raise UsageError(
            f"--length {seq_len}: the sweep has {units.between(lengths[0], lengths[-1], str)} in"
            f" {mode}; the nearest is {nearest}, and attnbench sweep --lengths {seq_len}"
            " measures it"
        )
    found = [_at(str(name), rows, seq_len) for name, rows in own.groupby("series", sort=False)]
    excluded = [each for each in found if isinstance(each, Excluded)]
    choices = [each for each in found if isinstance(each, Choice)]
    fitting = [c for c in choices if memory_bytes is None or c.peak_bytes <= memory_bytes]
    excluded += [
        Excluded(series=choice.series, ending="", reason="", peak_bytes=choice.peak_bytes)
        for choice in choices
        if choice not in fitting
    ]
    return Recommendation(
        mode=mode,
        seq_len=seq_len,
        tokens=tokens if mode in PASSES else None,
        memory_bytes=memory_bytes,
        choices=tuple(_ranked(fitting, _margins(own, standings, mode, seq_len))),
        excluded=tuple(excluded),
    )


def _at(series: str, rows: pd.DataFrame, seq_len: int) -> Choice | Excluded:
    """One series at that length, from its rows of one mode."""
    if suspect := str(rows["suspect"].iloc[0]):
        return Excluded(series=series, ending=SUSPECT, reason=suspect, peak_bytes=math.nan)
    known: dict[int, dict[Hashable, Any]] = {r["seq_len"]: r for r in rows.to_dict("records")}
    lengths = _around(seq_len, known)
    if not lengths:
        reason = "the sweep has it at other lengths only"
        return Excluded(series=series, ending=MISSING, reason=reason, peak_bytes=math.nan)
    ends = [known[n] for n in lengths]
    measured = [end["time_s"] > 0 for end in ends]
    for end, timed in zip(ends, measured, strict=True):
        # a prediction counts for a case that was not measured only for lack of time
        waits = end["cause"] == Cause.BUDGET or end["outcome"] == MISSING
        if not timed and not (waits and end["refined_s"] > 0):
            return Excluded(
                series=series,
                ending=str(end["cause"] or end["outcome"]),
                reason=str(end["reason"]),
                peak_bytes=float(end["refined_bytes"]),
            )

    def cost(column: str, predicted: str | None = None, scale: str | None = None) -> float:
        values = [
            (end[column] if end[column] > 0 or predicted is None else end[predicted])
            * (end[scale] if scale else 1.0)
            for end in ends
        ]
        return _between(lengths, values, seq_len)

    basis = Basis.MEASURED if len(ends) == 1 else Basis.BETWEEN
    return Choice(
        series=series,
        rank=None,
        basis=basis if all(measured) else Basis.PREDICTED,
        lengths=lengths,
        seconds=cost(TIME, "refined_s", "batch_scale"),
        low=cost("time_lo_s", "refined_lo_s", "batch_scale"),
        high=cost("time_hi_s", "refined_hi_s", "batch_scale"),
        margin=UNKNOWN,
        peak_bytes=cost(MEMORY, "refined_bytes"),
        state_bytes=cost(STATE),
    )


def _margins(
    cases: pd.DataFrame, standings: Standings, mode: str, seq_len: int
) -> Callable[[str, str], Margin]:
    """The comparison of two series at that length, or between the two measured ones around it."""
    timed = cases[cases[TIME] > 0]
    lengths = {str(s): set(map(int, own["seq_len"])) for s, own in timed.groupby("series")}

    def margin(a: str, b: str) -> Margin:
        ends = _around(seq_len, lengths[a] & lengths[b])
        if not ends:
            return UNKNOWN
        found = [standings.margin(a, b, mode, n) for n in ends]
        factor, low, high = (
            _between(ends, [getattr(m, name) for m in found], seq_len)
            for name in ("factor", "low", "high")
        )
        return Margin(factor=factor, low=low, high=high)

    return margin


def _ranked(choices: Sequence[Choice], margin: Callable[[str, str], Margin]) -> Iterator[Choice]:
    """The measured choices in groups of ties, then the predicted ones by their times."""
    named = {choice.series: choice for choice in choices if choice.basis is not Basis.PREDICTED}
    rank, first = 1, None
    for group in groups(list(named), margin):
        for name in group:
            first = first or named[name]
            against = margin(name, first.series) if name != first.series else Margin.of(0.0, 0.0)
            yield replace(named[name], rank=rank, margin=against)
        rank += len(group)
    rest = [choice for choice in choices if choice.basis is Basis.PREDICTED]
    for choice in sorted(rest, key=lambda choice: choice.seconds):
        first = first or choice
        yield replace(choice, margin=Margin(factor=choice.seconds / first.seconds))


def _around(seq_len: int, lengths: Collection[int]) -> tuple[int, ...]:
    """The length itself if it is among these, else its two neighbours, or none."""
    below = [n for n in lengths if n <= seq_len]
    above = [n for n in lengths if n >= seq_len]
    return tuple(dict.fromkeys((max(below), min(above)))) if below and above else ()


def _between(lengths: Sequence[int], values: Sequence[float], seq_len: int) -> float:
    """The value at a length on the line in log–log between one or two others."""
    if len(lengths) == 1 or 0 in values:
        return float(values[0])
    (x0, x1), (y0, y1) = (map(math.log, pair) for pair in (lengths, values))
    share = (math.log(seq_len) - x0) / (x1 - x0)
    return math.exp((1 - share) * y0 + share * y1)
