"""Costs that were not measured, predicted from those that were; times with a band.

The rule is the one by which a running sweep decides, applied to the estimates over all rounds. Its
accuracy is tested on measured times: each length of a series is predicted from the shorter ones, at
least two, as if the sweep had ended there. Like an exponent's error, the error of a log time is
taken to grow in proportion to the distance in log N from the nearest measured length. Its variance
at a distance of 1 is the mean square of the test errors of all series, each divided by its
distance, with as many degrees of freedom as lengths were tested. The 95 % band adds the error of
the nearest estimate; a band wider than `UNCERTAIN` is left out.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from statistics import mean

import numpy as np

from attnbench.metrics import MEMORY, TABLE, TIME
from attnbench.records import Outcome, Planned, Run
from attnbench.run.costs import Cost, Costs, Group, Rates, seq_len
from attnbench.statistics.estimate import LEVEL, Estimate, student_quantile

PREDICTED = (*TABLE[TIME].prediction, "predicted_bytes")
FEWEST = 2  # lengths from which the rule can tell the growth of a series
UNCERTAIN = 1000  # an interval whose ends differ by a larger factor says nothing


def predictions(
    plan: Sequence[Planned],
    runs: Sequence[Run],
    known: Mapping[str, Estimate],
    rates: Rates | None,
) -> dict[str, dict[str, float]]:
    """The `PREDICTED` columns of each case that can run, by its key; NaN if measured.

    `known` are the measured times of one iteration. There is no band for a series of which no
    length was measured in the mode, nor if no series has more than two.
    """
    costs, plan = Costs(plan, rates), sorted(plan, key=seq_len)
    cases = {planned.case.key: planned for planned in plan}
    for run in (run for run in runs if run.case in cases):
        costs.learn(cases[run.case], run)
    curves: dict[Group, list[Planned]] = {}  # by series and mode
    for key in (key for key in cases if key in known):
        costs.take(Cost.SECONDS, cases[key], known[key].point)
        curves.setdefault(costs.groups(cases[key], Cost.SECONDS)[0], []).append(cases[key])
    tried = [squares for curve in curves.values() for squares in _tried(curve, costs) if squares]
    spread = math.sqrt(mean(chain(*tried))) if tried else math.nan
    measured = {run.case for run in runs if run.values.get(MEMORY)}
    refused = {run.case for run in runs if run.outcome is Outcome.UNSUPPORTED}
    found = {}
    for key, planned in cases.items():
        if key in refused or planned.refusal:
            continue
        point = half = peak_bytes = math.nan
        if key not in known and not costs.is_unknown(planned, Cost.SECONDS):
            point = costs.iteration_s(planned) or math.nan
            curve = curves.get(costs.groups(planned, Cost.SECONDS)[0])
            if tried and curve:
                near = min(curve, key=lambda other: _distance(planned, other))
                error = np.nan_to_num(known[near.case.key].log_se)
                half = math.hypot(spread * _distance(planned, near), error)
                half *= student_quantile(LEVEL, len(tried))
            half = math.nan if 2 * half > math.log(UNCERTAIN) else half
        if key not in measured and not costs.is_unknown(planned, Cost.BYTES):
            peak_bytes = costs.predicted(Cost.BYTES, planned) or math.nan
        ends = (point, point * math.exp(-half), point * math.exp(half), peak_bytes)
        found[key] = dict(zip(PREDICTED, ends, strict=True))
    return found


def _tried(curve: Sequence[Planned], times: Costs) -> Iterator[list[float]]:
    """Squares of errors over distances, for each length from the third on."""
    for last in range(FEWEST, len(curve)):
        shorter, squares = Costs(curve, times.rates), []
        for before, known in enumerate(curve[:last], 1):
            shorter.take(Cost.SECONDS, known, times.iteration_s(known))
            far = _distance(curve[last], known)
            if before >= FEWEST and far:
                error = math.log(shorter.iteration_s(curve[last]) / times.iteration_s(curve[last]))
                squares.append((error / far) ** 2)
        yield squares


def _distance(a: Planned, b: Planned) -> float:
    """How far apart two lengths are, in the logarithm of N."""
    return abs(math.log(seq_len(a) / seq_len(b)))
