"""The points that a figure draws, computed before anything is drawn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from attnbench import units
from attnbench.analysis.summary import Frame
from attnbench.render.labels import why

LONGEST = 22  # characters of the reason in a legend


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """What a figure shows for each case: columns of the summary, and the axis."""

    value: str
    low: str | None
    high: str | None
    predicted: str
    axis: str
    text: Callable[[float], str]
    base: int  # of the logarithmic axis
    per_token: bool = False  # not of a batch


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One series in one mode, shortest length first.

    `values` are NaN where nothing was measured; `guesses` hold the predictions there, if any.
    `causes` are the reasons, and `end` names those of lengths without a prediction.
    """

    series: str
    lengths: np.ndarray
    values: np.ndarray
    low: np.ndarray
    high: np.ndarray
    guesses: np.ndarray
    causes: tuple[str, ...] = ()
    end: str = ""

    @property
    def drawn(self) -> np.ndarray:
        """Measured values, and guesses where there are none."""
        return np.where(np.isfinite(self.values), self.values, self.guesses)

    @property
    def last(self) -> tuple[float, float] | None:
        """Length and height of the last point that can be drawn, or None."""
        known = np.flatnonzero(np.isfinite(self.drawn))
        return (self.lengths[known[-1]], self.drawn[known[-1]]) if len(known) else None


def curves(summary: Frame, mode: str, quantity: Quantity) -> list[Curve]:
    """Every series of a mode, in the order of the plan."""
    cases = summary[summary["mode"] == mode]
    return [
        _curve(str(series), rows.sort_values("seq_len"), quantity)
        for series, rows in cases.groupby("series", sort=False)
    ]


def _curve(series: str, rows: Frame, quantity: Quantity) -> Curve:
    scale = (1 / rows["tokens"] if quantity.per_token else rows["batch_scale"]).to_numpy(float)
    values = rows[quantity.value].to_numpy(float) * scale
    nothing = np.full(len(rows), np.nan)
    missing = ~np.isfinite(values)
    guesses = np.where(missing, rows[quantity.predicted].to_numpy(float) * scale, np.nan)
    ends = zip(rows["outcome"], rows["cause"], missing, strict=True)
    reasons = [why(outcome, cause) if gone else "" for outcome, cause, gone in ends]
    unseen = ["" if np.isfinite(guess) else r for guess, r in zip(guesses, reasons, strict=True)]
    return Curve(
        series=series,
        lengths=rows["seq_len"].to_numpy(),
        values=values,
        low=rows[quantity.low].to_numpy(float) * scale if quantity.low else nothing,
        high=rows[quantity.high].to_numpy(float) * scale if quantity.high else nothing,
        guesses=guesses,
        causes=tuple(dict.fromkeys(filter(None, reasons))),
        end=_end([int(n) for n in rows["seq_len"]], unseen),
    )


def _end(lengths: Sequence[int], reasons: Sequence[str]) -> str:
    """`cannot run at 128, from 32K`: the lengths that a figure cannot show and why, in short."""
    causes = list(dict.fromkeys(filter(None, reasons)))
    if all(reasons) or not causes:
        return causes[0] if len(causes) == 1 else "not measured" if causes else ""
    parts = [f"{cause} {_where(lengths, [r == cause for r in reasons])}" for cause in causes]
    text, gone = "; ".join(parts), sum(map(bool, reasons))
    return text if len(text) <= LONGEST else f"{gone} of {len(lengths)} not measured"


def _where(lengths: Sequence[int], gone: Sequence[bool]) -> str:
    """`at 128, 512–2K, from 32K` for those lengths."""
    runs = [list(run) for is_gone, run in groupby(range(len(gone)), gone.__getitem__) if is_gone]
    last = runs[-1][-1] == len(lengths) - 1
    inner = [
        "–".join(units.tick(lengths[i]) for i in dict.fromkeys((run[0], run[-1])))
        for run in (runs[:-1] if last else runs)
    ]
    tail = [f"from {units.tick(lengths[runs[-1][0]])}"] if last else []
    return ", ".join([*([f"at {', '.join(inner)}"] if inner else []), *tail])
