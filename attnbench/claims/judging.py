"""How intervals decide a claim about a ratio, of one number or at every length.

Reproduced only if all of the 95 % confidence interval lies on the claimed side, not reproduced only
if all of it lies on the other; otherwise the answer is "cannot tell".
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, log

import numpy as np
from numpy.typing import NDArray

from attnbench.claims.bench import CostCurve
from attnbench.claims.claim import Answer, Costs, Judgement, Lengths, Number, Range
from attnbench.statistics.curves import Array, LogCurve, half_widths

# lengths that a claim over a range needs; one that lists fewer needs all of those
LEAST = 3


@dataclass(frozen=True, kw_only=True)
class MeasuredRatio:
    """The logarithms of a ratio, what it is, and the lengths behind it."""

    label: str
    logs: LogCurve
    lengths: tuple[int, ...]

    @property
    def numbers(self) -> tuple[Number, ...]:
        """The ratio at each length."""
        logs = self.logs
        rows = zip(logs.logs, logs.low, logs.high, logs.lengths, strict=True)
        return tuple(Number.ratio(self.label, *row) for row in rows)

    def at(self, lengths: Sequence[int]) -> "MeasuredRatio":
        """The same ratio at these of its lengths."""
        return replace(self, logs=self.logs.at(lengths), lengths=tuple(lengths))

    def among(self, lengths: Lengths) -> "MeasuredRatio":
        """The same at the lengths that a claim is about. Raises `OutOfScope` if it has none."""
        return self.at(lengths.among(self.logs.whole))


def compare(found: MeasuredRatio, value: Range, few: str = "") -> Judgement:
    """Whether the mean, with its confidence interval, lies in a range; cannot tell if too `few`."""
    mean, error, df = found.logs.mean()
    half = float(half_widths([error], [df])[0])
    low, high = mean - half, mean + half
    least, most = (log(end) if end > 0 else -inf for end in (value.low, value.high))
    inside, outside = low >= least and high <= most, high < least or low > most
    answer, why = Answer.CANNOT_TELL, few
    if not np.isfinite(half):
        why = "no confidence interval"
    elif not (inside or outside):
        why = f"the confidence interval reaches both sides of {value.text}"
    elif inside and not few:
        answer = Answer.REPRODUCED
    elif not few:
        answer, why = Answer.NOT_REPRODUCED, f"the source says {value.text}"
    at = found.lengths[0] if len(found.lengths) == 1 else None
    number = Number.ratio(found.label, mean, low, high, at)
    return Judgement(answer=answer, why=why, numbers=(number,), lengths=found.lengths)


def compare_curves(a: CostCurve, b: CostCurve, quantity: Costs) -> MeasuredRatio:
    """The quantity of A over that of B, at the lengths of both."""
    logs = a.over(b, *quantity)
    first, second = quantity
    other = b.series if first is second else f"{second} of {b.series}"
    label = f"{first} of {a.series} over {other}, {a.mode}"
    return MeasuredRatio(label=label, logs=logs, lengths=tuple(logs.whole))


def holds_everywhere(
    low: Array, high: Array, numbers: Sequence[Number], lengths: Lengths
) -> Judgement:
    """Whether each confidence interval, `low` to `high`, of `numbers` lies above zero.

    Reproduced if all do, at three lengths or all that are listed; not reproduced if any lies
    entirely below; otherwise the answer is "cannot tell".
    """
    at = [number.length or 0 for number in numbers]
    unknown, below, open_ = np.isnan(low), high < 0, ~(low > 0)
    answer = Answer.CANNOT_TELL
    if below.any():
        answer, why = Answer.NOT_REPRODUCED, f"not true at {_listed(at, below)}"
    elif unknown.any():
        why = f"no confidence interval at {_listed(at, unknown)}"
    elif open_.any():
        why = f"the confidence interval reaches both sides at {_listed(at, open_)}"
    elif not (why := too_few(len(set(at)), lengths)):
        answer = Answer.REPRODUCED
    # the number closest to refuting the claim comes first
    ordered = tuple(numbers[i] for i in np.argsort(low, kind="stable"))
    return Judgement(answer=answer, why=why, numbers=ordered, lengths=tuple(sorted(set(at))))


def too_few(count: int, lengths: Lengths) -> str:
    """Why this number of lengths does not suffice, or nothing."""
    needed = min(LEAST, len(lengths.listed) or LEAST)
    return "" if count >= needed else f"too few lengths: {count} of at least {needed}"


def _listed(lengths: Sequence[int], chosen: NDArray[np.bool_]) -> str:
    """`512, 1,024, 2,048, … 65,536`."""
    texts = [f"{n:,}" for n in np.unique(np.array(lengths)[chosen])]
    return ", ".join(texts if len(texts) <= 4 else [*texts[:3], f"… {texts[-1]}"])
