"""The algebra of measured curves: logarithms of a cost by length, with their errors.

Independent standard errors add in squares. The variances of all cases share one estimate, so the
degrees of freedom of a combination are the fewest of its parts, not their sum.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnbench.analysis.statistics.estimate import half_widths
from attnbench.records import SIZES, Case, Planned, Series, metrics, size_text

if TYPE_CHECKING:
    import pandas as pd

Array: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class LogCurve:
    """Natural logarithms of a positive quantity at K increasing lengths; every array is [K].

    The standard error of an exact value is 0, an unknown one is NaN.
    """

    lengths: Array  # tokens
    logs: Array
    errors: Array  # standard errors of the logs
    df: Array  # degrees of freedom of the errors; infinite where exact

    @classmethod
    def of(
        cls, lengths: ArrayLike, costs: ArrayLike, errors: ArrayLike = 0.0, df: ArrayLike = np.inf
    ) -> Self:
        """The curve of costs in any order, without those that are not positive.

        `errors` and `df` are of the logarithms.
        """
        columns = [np.asarray(column, float) for column in (lengths, costs, errors, df)]
        table = np.stack(np.broadcast_arrays(*columns))
        table = table[:, table[1] > 0]
        x, y, se, degrees = table[:, np.argsort(table[0], kind="stable")]
        return cls(lengths=x, logs=np.log(y), errors=se, df=degrees)

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def whole(self) -> list[int]:
        """The lengths as whole numbers."""
        return [int(n) for n in self.lengths]

    @property
    def half(self) -> Array:
        """Half the 95 % confidence interval of each logarithm."""
        return half_widths(self.errors, self.df)

    @property
    def low(self) -> Array:
        """Lower end of each confidence interval."""
        return self.logs - self.half

    @property
    def high(self) -> Array:
        """Upper end of each confidence interval."""
        return self.logs + self.half

    def at(self, lengths: Iterable[float]) -> Self:
        """The part of the curve at the given lengths."""
        return self[np.isin(self.lengths, list(lengths))]

    def __getitem__(self, chosen: slice | NDArray[np.bool_] | Sequence[int]) -> Self:
        parts = (self.lengths, self.logs, self.errors, self.df)
        lengths, logs, errors, df = (part[chosen] for part in parts)
        return replace(self, lengths=lengths, logs=logs, errors=errors, df=df)

    def minus(self, other: "LogCurve") -> "LogCurve":
        """The log ratio of this quantity to another, at the lengths of both."""
        lengths, i, j = np.intersect1d(self.lengths, other.lengths, return_indices=True)
        return LogCurve(
            lengths=lengths,
            logs=self.logs[i] - other.logs[j],
            errors=np.hypot(self.errors[i], other.errors[j]),
            df=np.minimum(self.df[i], other.df[j]),
        )

    def coefficient(self, degree: int) -> tuple[float, float, float]:
        """The leading coefficient of a least-squares polynomial in log N, with its 95 % interval.

        Degree 1 gives the exponent of N. As a weighted sum of the logarithms, the coefficient has
        an error that follows from theirs.
        """
        x = np.log(self.lengths)
        return self._sum(np.linalg.pinv(np.vander(x - x.mean(), degree + 1))[0])

    @property
    def end_slopes(self) -> tuple[float, float]:
        """Between which the exponent of N lies at the first and at the last length.

        Both slopes are those of a least-squares parabola in log N, and their 95 % intervals lie
        within.
        """
        x = np.log(self.lengths)
        x = x - x.mean()
        bend, slope, _ = np.linalg.pinv(np.vander(x, 3))
        (_, *first), (_, *last) = (self._sum(slope + 2 * end * bend) for end in x[[0, -1]])
        return min(first[0], last[0]), max(first[1], last[1])

    def _sum(self, weights: Array) -> tuple[float, float, float]:
        """The sum of the logarithms with these weights, with its 95 % interval."""
        error = float(np.sqrt(weights**2 @ self.errors**2))
        # fmin ignores lengths without degrees of freedom: their errors are NaN, or taken as 0
        half = float(half_widths(error, np.fmin.reduce(self.df)))
        value = float(weights @ self.logs)
        return value, value - half, value + half


def cost_curve(cases: "pd.DataFrame", metric: str) -> LogCurve:
    """The cost per sequence of one series in one mode, from its rows of the summary.

    A cost has the errors of its estimate; those of a condition of the measurement are unknown.
    Counts, and derived columns that are no metrics, are exact.
    """
    row = metrics.TABLE.get(metric)
    errors: tuple[ArrayLike, ...] = ()
    if row is not None and row.interval:
        errors = cases[row.estimate[3]], cases[row.estimate[4]]
    elif row is not None and row.better is metrics.Better.NEITHER:
        errors = np.nan, np.nan
    return LogCurve.of(cases["seq_len"], cases[metric] / cases["batch"], *errors)


def series_of(plan: Sequence[Planned]) -> dict[str, Series]:
    """The series of each case of the plan, by the key of the case.

    Where the form of a mechanism changes along the lengths or sizes (its default is the fastest at
    each), its series have none; where a workload has several forms, each form is a series. Sizes
    that the plan crosses are part of it: `transformer:sdpa D=64 bf16`.
    """
    groups: dict[tuple[str, Any], list[Case]] = {}
    for planned in plan:
        groups.setdefault((planned.case.mechanism, planned.case.options), []).append(planned.case)
    sizes = size_names(plan)
    series: dict[str, Series] = {}
    for cases in groups.values():
        rivals = len({case.workload for case in cases}) < len({case.key for case in cases})
        mixed = len({case.form for case in cases}) > 1 and not rivals
        for case in cases:
            series[case.key] = Series(
                mechanism=case.mechanism,
                form=None if mixed else case.form,
                options=case.options,
                sizes=sizes[case.key],
            )
    return series


def series_names(plan: Sequence[Planned]) -> dict[str, str]:
    """The name of the series of each case of the plan, by the key of the case."""
    return {key: str(series) for key, series in series_of(plan).items()}


def size_names(plan: Iterable[Planned]) -> dict[str, str]:
    """The sizes of each case, `D=64 bf16`, by its key: those that differ at one mode and length."""
    values: dict[tuple[str, str, int], set[Any]] = {}
    cases = [planned.case for planned in plan]
    for w in (case.workload for case in cases):
        for size in SIZES:
            values.setdefault((size, w.mode, w.seq_len), set()).add(getattr(w, size))
    crossed = {(size, mode) for (size, mode, _), distinct in values.items() if len(distinct) > 1}
    return {
        case.key: " ".join(
            size_text(size, getattr(case.workload, size))
            for size in SIZES
            if (size, case.workload.mode) in crossed
        )
        for case in cases
    }
