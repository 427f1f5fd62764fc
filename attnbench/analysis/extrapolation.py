"""Times that were not measured, predicted from those that were, with a band.

The rule is that by which a running sweep decides, but with the estimates over all rounds. How well
it predicts is tried on what is known: each length of a series is predicted from shorter ones, at
least two, as if the sweep had ended there. Like that of an exponent, the error of a logarithm is
taken to grow in proportion to the distance in log N from the nearest measured length. Its variance
at a distance of 1 is the mean square of the errors tried, each divided by its distance; shrunk, as
variances of estimates are, towards that of all series; with as many degrees of freedom as lengths
were tried. The band (95 %) adds the error of the nearest estimate.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from attnbench.records import Planned
from attnbench.run.predict import Rates, Times, seq_len
from attnbench.statistics.curves import series_names
from attnbench.statistics.estimate import LEVEL, Estimate, shrunk, student_quantile

FEWEST = 2  # lengths from which the rule tells the growth of a series

Curve = tuple[str, str]  # series and mode


def extrapolated(
    plan: Sequence[Planned], known: Mapping[str, Estimate], rates: Rates | None
) -> dict[str, Estimate]:
    """The predicted time of each case of the plan that is not `known`, by its key.

    `known` are the measured times of one iteration. There is no band for a series of which no
    length was measured in the mode, nor if no series has more than two.
    """
    times, curves = Times(series_names(plan), rates), dict[Curve, list[Planned]]()
    for planned in sorted(plan, key=seq_len):
        if planned.case.key in known:
            times.learn(planned, known[planned.case.key].point)
            curves.setdefault(_curve(planned, times), []).append(planned)
    spreads = _spreads({name: [*_tried(own, times)] for name, own in curves.items()})
    return {
        planned.case.key: _banded(
            planned, times, known, curves.get(name, ()), *spreads.get(name, (math.nan, 0.0))
        )
        for planned in plan
        if planned.case.key not in known
        for name in [_curve(planned, times)]
    }


def _curve(planned: Planned, times: Times) -> Curve:
    return times.names[planned.case.key], planned.case.workload.mode


def _tried(curve: Sequence[Planned], times: Times) -> Iterator[list[float]]:
    """Errors of the logarithm over their distances, for each length from the third on."""
    for last in range(FEWEST, len(curve)):
        shorter = Times(times.names, times.rates)
        errors = []
        for before, known in enumerate(curve[:last], 1):
            shorter.learn(known, times.of(known))
            far = _distance(curve[last], known)
            if before >= FEWEST and far:
                errors.append(math.log(shorter.of(curve[last]) / times.of(curve[last])) / far)
        yield errors


def _spreads(tried: Mapping[Curve, Sequence[Sequence[float]]]) -> dict[Curve, tuple[float, float]]:
    """The standard deviation of the error at a distance of 1, and its degrees of freedom."""
    dfs = np.array([len(lengths) for lengths in tried.values()], float)
    if not dfs.any():
        return {}
    errors = [[error for errors in lengths for error in errors] for lengths in tried.values()]
    own = np.array([sum(e * e for e in every) / max(len(every), 1) for every in errors])
    variances, freedom = shrunk(own, dfs)
    return dict(zip(tried, zip(np.sqrt(variances), freedom, strict=True), strict=True))


def _banded(
    planned: Planned,
    times: Times,
    known: Mapping[str, Estimate],
    curve: Sequence[Planned],
    spread: float,
    df: float,
) -> Estimate:
    """The prediction; without a band where the spread is unknown."""
    point = times.of(planned)
    if not curve or math.isnan(spread):
        return Estimate(point=point or math.nan)
    nearest = min(curve, key=lambda other: _distance(planned, other))
    error = known[nearest.case.key].log_se
    own = 0.0 if math.isnan(error) else error
    half = student_quantile(LEVEL, df) * math.hypot(spread * _distance(planned, nearest), own)
    return Estimate(point=point, low=point * math.exp(-half), high=point * math.exp(half))


def _distance(a: Planned, b: Planned) -> float:
    """How far apart two lengths are, in the logarithm of N."""
    return abs(math.log(seq_len(a) / seq_len(b)))
