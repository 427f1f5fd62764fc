"""Times that were not measured, predicted from those that were, with a band.

The rule is the one by which a running sweep decides, applied to the estimates over all rounds. Its
accuracy is tested on measured times: each length of a series is predicted from the shorter ones, at
least two, as if the sweep had ended there. Like the error of an exponent, that of a log time is
taken to grow in proportion to the distance in log N from the nearest measured length. Its variance
at a distance of 1 is the mean square of the test errors, each divided by its distance; it is shrunk
towards that of all series, as variances of estimates are, and has as many degrees of freedom as
lengths were tested. The 95 % band adds the error of the nearest estimate; a band wider than
`UNCERTAIN` is left out.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from attnbench.records import Part, Planned
from attnbench.run.costs import Costs, Rates, seq_len
from attnbench.statistics.curves import series_names
from attnbench.statistics.estimate import LEVEL, Estimate, shrunk, student_quantile

FEWEST = 2  # lengths from which the rule can tell the growth of a series
UNCERTAIN = 1000  # an interval whose ends differ by a larger factor says nothing


def extrapolated(
    plan: Sequence[Planned], known: Mapping[str, Estimate], rates: Rates | None
) -> dict[str, Estimate]:
    """The predicted time of each case of the plan that is not `known`, by its key.

    `known` are the measured times of one iteration. There is no band for a series of which no
    length was measured in the mode, nor if no series has more than two.
    """
    times, plan = Costs(series_names(plan), rates), sorted(plan, key=seq_len)
    curves: dict[tuple[str, ...], list[Planned]] = {}  # by series and mode
    for planned in plan:
        if planned.case.key in known:
            times.learn_time(planned, known[planned.case.key].point)
            curves.setdefault(times.groups(planned, Part.TIME)[0], []).append(planned)
    tried = [[*_tried(curve, times)] for curve in curves.values()]
    dfs = np.array([len(lengths) for lengths in tried], float)
    own = np.array([sum(map(sum, lengths)) / max(1, sum(map(len, lengths))) for lengths in tried])
    spread = shrunk(own, dfs) if dfs.any() else (own * math.nan, own + 1)
    spreads = dict(zip(curves, zip(*spread, strict=True), strict=True))
    found = {}
    for planned in plan:
        if planned.case.key not in known:
            curve = times.groups(planned, Part.TIME)[0]
            unknown = times.is_unknown(planned, Part.TIME)
            point = math.nan if unknown else times.iteration_s(planned) or math.nan
            half = math.nan
            if curve in curves:
                variance, df = spreads[curve]
                near = min(curves[curve], key=lambda other: _distance(planned, other))
                error = np.nan_to_num(known[near.case.key].log_se)
                total = math.sqrt(variance * _distance(planned, near) ** 2 + error**2)
                half = student_quantile(LEVEL, df) * total
            if 2 * half > math.log(UNCERTAIN):
                half = math.nan
            ends = point * math.exp(-half), point * math.exp(half)
            found[planned.case.key] = Estimate(point=point, low=ends[0], high=ends[1])
    return found


def _tried(curve: Sequence[Planned], times: Costs) -> Iterator[list[float]]:
    """Squares of errors over distances, for each length from the third on."""
    for last in range(FEWEST, len(curve)):
        shorter, squares = Costs(times.names, times.rates), []
        for before, known in enumerate(curve[:last], 1):
            shorter.learn_time(known, times.iteration_s(known))
            far = _distance(curve[last], known)
            if before >= FEWEST and far:
                error = math.log(shorter.iteration_s(curve[last]) / times.iteration_s(curve[last]))
                squares.append((error / far) ** 2)
        yield squares


def _distance(a: Planned, b: Planned) -> float:
    """How far apart two lengths are, in the logarithm of N."""
    return abs(math.log(seq_len(a) / seq_len(b)))
