"""Pairs of laps, and the core's speed beside them as a control variate.

The time of a pair of laps is the faster of the two: what disturbs a single lap only ever makes it
slower. Where probes of the core ran beside laps (`running.pace`), log times follow them by a slope
that differs between hosts. On one whose core other guests slow it is 0.9, and halves the variance
of ratios; beside ordinary load it is near 0, and a slope of 0.9 would widen intervals by up to
60 %. So each sweep estimates its own from what its ratios are made of: how the faster laps of one
series differ from those of the others in the same pair. One number from all laps biases no ratio,
and its estimate takes little from the degrees of freedom of small sweeps
(`tests/benchmarks/coverage.py`).
"""

import math
import warnings
from collections.abc import Hashable, Iterable, Mapping
from statistics import median

import numpy as np

from attnbench.analysis.statistics.curves import Array
from attnbench.records import Outcome, Part, Run, Sample

USUAL_S = 0.0005  # of a probe; any constant serves
OUTLYING = 3.0  # standard deviations, estimated by the median, beyond which a deviation is cut off
FEWEST = 12  # deviations from which a slope is estimated

Laps = Mapping[int, float]  # pair of laps -> seconds of one iteration


def by_pair(samples: Iterable[Sample], slope: float = 0.0) -> Laps:
    """Seconds of one iteration in each complete pair of laps: the faster of the two.

    With a `slope`, had the core been as fast as usual, as far as probes tell.
    """
    return {
        pair: min(s.seconds / math.pow((s.pace_s or USUAL_S) / USUAL_S, slope) for s in both)
        for pair, both in _pairs(samples)
    }


def log_ratio(a: Laps, b: Laps) -> float | None:
    """The log ratio of one round; None where the two share no pair of laps."""
    logs = [math.log(a[pair] / b[pair]) for pair in a.keys() & b.keys()]
    return median(logs) if logs else None


def sweep_slope(runs: Iterable[Run], blocks: Mapping[str, Hashable]) -> float:
    """By how much log times follow probes in these runs; `blocks` are those of the cases."""
    visits: dict[tuple[Hashable, int], list[dict[int, Sample]]] = {}
    for run in runs:
        if run.part is Part.TIME and run.outcome is Outcome.OK and run.case in blocks:
            faster = {p: min(both, key=lambda s: s.seconds) for p, both in _pairs(run.samples)}
            probed = {pair: sample for pair, sample in faster.items() if sample.pace_s}
            visits.setdefault((blocks[run.case], run.round), []).append(probed)
    parts = [np.zeros((2, 0))]
    for series in visits.values():
        last = max((pair for laps in series for pair in laps), default=-1)
        logs = np.full((2, len(series), last + 1), np.nan)
        for i, laps in enumerate(series):
            for pair, sample in laps.items():
                logs[:, i, pair] = math.log(sample.seconds), math.log(sample.pace_s or math.nan)
        parts.append(deviations(logs).reshape(2, -1))
    times, probes = np.concatenate(parts, axis=1)
    return estimated_slope(times, probes)


def deviations(logs: Array) -> Array:
    """How logs [..., series, pairs] of a visit deviate from their series and, then, their pair.

    NaN where they are, or where a pair has only one series.
    """
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # of NaN alone
        centred = logs - np.nanmedian(logs, axis=-1, keepdims=True)
        shared = np.isfinite(centred).sum(axis=-2, keepdims=True) > 1
        return np.where(shared, centred - np.nanmean(centred, axis=-2, keepdims=True), np.nan)


def estimated_slope(times: Array, probes: Array) -> float:
    """The slope between 0 and 1 of deviations [n] of log times on those of probes, robustly."""
    finite = np.isfinite(times) & np.isfinite(probes)
    if finite.sum() < FEWEST:
        return 0.0
    y, x = (_without_outliers(values[finite]) for values in (times, probes))
    power = float(x @ x)
    return min(1.0, max(0.0, float(x @ y) / power)) if power else 0.0


def _without_outliers(values: Array) -> Array:
    most = OUTLYING * 1.4826 * float(np.median(np.abs(values)))
    return np.clip(values, -most, most)


def _pairs(samples: Iterable[Sample]) -> Iterable[tuple[int, tuple[Sample, Sample]]]:
    """Each complete pair of laps with its number."""
    laps = {sample.lap: sample for sample in samples if sample.lap is not None}
    for lap in laps:
        if lap % 2 == 0 and lap + 1 in laps:
            yield lap // 2, (laps[lap], laps[lap + 1])
