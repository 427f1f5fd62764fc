"""Predictions of what a case will cost: seconds of one iteration, and peak bytes.

The first guess uses FLOPs alone; every measured case improves the next prediction.

The journal stores first guesses only. `replayed` recomputes the refined predictions from the runs
in the order in which they were written: that of a case from all runs before it first ran, or before
the decision not to start it. A case without any run is predicted from all runs; one that cannot run
has no prediction.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from operator import attrgetter
from statistics import median

from attnbench.records import Case, Mode, Outcome, Part, Planned, Run, Workload

Known = list[tuple[Planned, float]]

TRAINING = 3.0  # forward and backward over forward: two more products for each one

# the fields that all lengths of a curve share, in one mode and in any
NAMES = tuple(f.name for f in fields(Workload) if f.name not in ("batch", "seq_len"))
OWN_MODE = attrgetter(*NAMES)
ANY_MODE = attrgetter(*(name for name in NAMES if name != "mode"))


def seconds(
    planned: Planned,
    measured: Sequence[tuple[Planned, float]],
    guess_factor: float | None = None,
) -> float:
    """Predicted seconds of one iteration, from the longest measured lengths of the same series.

    Two lengths give a rate for the core and one for the rest; one length gives a single rate.
    Without any, the other mode is used, and without that the first guess times `guess_factor`, by
    default the median ratio of measured times to their first guesses.
    """
    nearest = sorted(
        (pair for pair in measured if alike(pair[0].case, planned.case)),
        key=lambda pair: pair[0].case.workload.seq_len,
    )
    if len(nearest) >= 2 and (fitted := two_rates(planned, *nearest[-2:])):
        return fitted
    if nearest:
        known, took_s = nearest[-1]
        return took_s * planned.flops / known.flops
    other = [pair for pair in measured if alike(pair[0].case, planned.case, ANY_MODE)]
    if other:
        known, took_s = max(other, key=lambda pair: pair[0].case.workload.seq_len)
        factor = TRAINING if planned.case.workload.mode is Mode.TRAINING else 1 / TRAINING
        return factor * took_s * planned.flops / known.flops
    if guess_factor is None:
        factors = [took_s / known.predicted_s for known, took_s in measured]
        guess_factor = median(factors) if factors else 1.0
    return guess_factor * planned.predicted_s


def two_rates(
    planned: Planned, first: tuple[Planned, float], second: tuple[Planned, float]
) -> float | None:
    """Seconds if core and rest each have one rate; None where the two cannot be separated."""
    (a, a_s), (b, b_s) = first, second
    a_rest, b_rest = a.flops - a.core_flops, b.flops - b.core_flops
    determinant = a_rest * b.core_flops - b_rest * a.core_flops
    if abs(determinant) < 0.05 * a.flops * b.flops:
        return None
    rest = (a_s * b.core_flops - b_s * a.core_flops) / determinant
    core = (a_rest * b_s - b_rest * a_s) / determinant
    if rest < 0 or core < 0:
        return None
    return rest * (planned.flops - planned.core_flops) + core * planned.core_flops


def alike(a: Case, b: Case, same: Callable[[Workload], object] = OWN_MODE) -> bool:
    """Whether two cases differ at most in length, batch and form, and with `ANY_MODE` in mode."""
    return (a.mechanism, a.options) == (b.mechanism, b.options) and (
        same(a.workload) == same(b.workload)
    )


def first_guess(flops: int, training: bool, flops_per_s: float) -> float:
    """Seconds of one iteration at an assumed rate."""
    return (TRAINING if training else 1.0) * flops / flops_per_s


def scaled_bytes(planned: Planned, measured: Sequence[tuple[Planned, float]]) -> float:
    """Predicted bytes, corrected by the prediction error at the longest measured length."""
    near = [
        (known, peak)
        for known, peak in measured
        if alike(known.case, planned.case) and known.case.form == planned.case.form
    ]
    if not near:
        return planned.predicted_bytes
    known, peak = max(near, key=lambda pair: pair[0].case.workload.seq_len)
    return planned.predicted_bytes * peak / known.predicted_bytes


def replayed(plan: Sequence[Planned], runs: Sequence[Run]) -> dict[str, tuple[float, float]]:
    """The predicted seconds of one iteration and peak bytes of each case, by its key.

    NaN for a case that cannot run.
    """
    times, peaks = _History(seconds), _History(scaled_bytes)
    cases = {planned.case.key: planned for planned in plan}
    blocks: dict[tuple[str, int], list[Planned]] = {}
    for planned in plan:
        blocks.setdefault(_block(planned), []).append(planned)
    cannot = {key for key, planned in cases.items() if planned.refusal}
    for run in runs:
        case = cases.get(run.case)
        if case is None:
            continue
        if run.outcome is Outcome.UNSUPPORTED:
            cannot.add(run.case)
        # it was decided not to start the case
        if run.outcome is not Outcome.OK and not run.elapsed_s:
            times.decide(run.case, case)
            peaks.decide(run.case, case)
        if run.samples and run.samples[0].lap is not None:
            # a whole block was decided on before its first run
            for other in blocks.pop(_block(case), ()):
                times.of(other.case.key, other)
                peaks.of(other.case.key, other)
        if run.part is Part.TIME and run.samples:
            times.learn(run.case, case, median(s.seconds for s in run.samples))
        if peak := run.values.get("allocated_peak_bytes"):
            peaks.learn(run.case, case, peak)
    nothing = (math.nan, math.nan)
    return {
        key: nothing if key in cannot else (times.of(key, case), peaks.of(key, case))
        for key, case in cases.items()
    }


class _History:
    """Predictions of one quantity, from cases of the same options as soon as there are any."""

    def __init__(self, rule: Callable[[Planned, Known], float]) -> None:
        self.rule = rule
        self.known: Known = []
        self.near: dict[tuple[object, ...], Known] = {}
        self.predicted: dict[str, float] = {}
        self.measured: set[str] = set()

    def of(self, key: str, case: Planned) -> float:
        """The prediction for the case, made now if there is none yet."""
        if key not in self.predicted:
            near = self.near.get(_group(case), self.known)
            self.predicted[key] = self.rule(case, near) or math.nan
        return self.predicted[key]

    def decide(self, key: str, case: Planned) -> None:
        """Predict a case again, unless it was measured before."""
        if key not in self.measured:
            self.predicted.pop(key, None)
            self.of(key, case)

    def learn(self, key: str, case: Planned, value: float) -> None:
        self.of(key, case)
        self.measured.add(key)
        self.known.append((case, value))
        self.near.setdefault(_group(case), []).append((case, value))


def _block(planned: Planned) -> tuple[str, int]:
    """Mode and length, which cases that are raced together share."""
    return str(planned.case.workload.mode), planned.case.workload.seq_len


def _group(planned: Planned) -> tuple[object, ...]:
    return planned.case.mechanism, planned.case.options
