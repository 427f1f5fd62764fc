"""Costs that were not measured, predicted from those that were.

The rule is the one by which a running sweep decides, applied to the estimates over all rounds.
"""

import math
from collections.abc import Mapping, Sequence

from attnbench.analysis.costs import CostKind, Costs, Rates, seq_len
from attnbench.records import Outcome, Planned, Run, metrics


def predictions(
    plan: Sequence[Planned], runs: Sequence[Run], times: Mapping[str, float], rates: Rates | None
) -> dict[str, dict[str, float]]:
    """The `PREDICTED` columns of each case that can run, by its key; NaN if measured.

    plan: of the sweep.
    runs: all of them.
    times: the measured times of one iteration [s], by the key of the case.
    rates: of the machine; None where they were not measured.
    """
    costs = Costs(plan, rates)
    plan = sorted(plan, key=seq_len)
    cases = {planned.case.key: planned for planned in plan}
    for run in (run for run in runs if run.case in cases):
        costs.learn(cases[run.case], run)
    for key in (key for key in cases if key in times):
        costs.take(CostKind.SECONDS, cases[key], times[key])
    weighed = {run.case for run in runs if run.values.get(metrics.MEMORY)}
    refused = {run.case for run in runs if run.outcome is Outcome.UNSUPPORTED}
    by_case = {}
    for key, planned in cases.items():
        if key in refused or planned.refusal:
            continue
        time_s = peak_bytes = math.nan
        if key not in times and not costs.is_unknown(planned, CostKind.SECONDS):
            time_s = costs.iteration_s(planned) or math.nan
        if key not in weighed and not costs.is_unknown(planned, CostKind.BYTES):
            peak_bytes = costs.predicted(CostKind.BYTES, planned) or math.nan
        by_case[key] = dict(zip(metrics.PREDICTED.values(), (time_s, peak_bytes), strict=True))
    return by_case
