"""Predictions of the cost of a case: seconds of one iteration, and peak bytes.

The first guess uses FLOPs and bytes alone; every measured case improves the next prediction.

The journal stores first guesses only. `replayed` recomputes the refined predictions from the runs
in the order in which they were written: that of a case from all runs before it first ran, or before
the decision not to start it. A case without any run is predicted from all runs; one that cannot run
has no prediction.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from statistics import median

from attnbench.analysis.curves import series_names
from attnbench.records import PASSES, Block, Case, Mode, Outcome, Part, Planned, Run, Workload

Known = list[tuple[Planned, float]]

CALLS_S = 1e-4  # of some ten calls of torch, whatever they compute
TRAINING = 3.0  # forward and backward over forward: two more products for each one

# the fields that all lengths of a curve share, in one mode and in any
NAMES = tuple(f.name for f in fields(Workload) if f.name not in ("batch", "seq_len"))
OWN_MODE = attrgetter(*NAMES)
ANY_MODE = attrgetter(*(name for name in NAMES if name != "mode"))


def seconds(
    planned: Planned,
    measured: Sequence[tuple[Planned, float]],
    guess_factor: float = 1.0,
) -> float:
    """Predicted seconds of one iteration, from the longest measured lengths of the same series.

    Two lengths give a rate for the core and one for the rest; one length gives a single rate.
    Without any, training is predicted from inference and the reverse, and without that by the first
    guess times `guess_factor`.
    """
    nearest = sorted(
        (pair for pair in measured if alike(pair[0].case, planned.case)),
        key=lambda pair: pair[0].case.workload.seq_len,
    )
    if len(nearest) >= 2 and (fitted := two_rates(planned, *nearest[-2:])):
        return fitted
    if nearest:
        known, took_s = nearest[-1]
        return took_s * work(planned) / work(known)
    other = [pair for pair in measured if alike(pair[0].case, planned.case, ANY_MODE)]
    mode = planned.case.workload.mode
    other = [p for p in other if {mode, p[0].case.workload.mode} <= {*PASSES}]
    if other:
        known, took_s = max(other, key=lambda pair: pair[0].case.workload.seq_len)
        factor = TRAINING if planned.case.workload.mode is Mode.TRAINING else 1 / TRAINING
        return factor * took_s * work(planned) / work(known)
    return guess_factor * planned.predicted_s


def work(planned: Planned) -> int:
    """FLOPs of one iteration, or its tokens for a mechanism without matrix products."""
    return planned.flops or planned.case.workload.tokens


def two_rates(
    planned: Planned, first: tuple[Planned, float], second: tuple[Planned, float]
) -> float | None:
    """Seconds if core and rest each have one rate; None where the two cannot be separated."""
    (a, a_s), (b, b_s) = first, second
    a_rest, b_rest = a.flops - a.core_flops, b.flops - b.core_flops
    determinant = a_rest * b.core_flops - b_rest * a.core_flops
    if abs(determinant) <= 0.05 * a.flops * b.flops:
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


def first_guess(products_s: float, moved_s: float, training: bool) -> float:
    """Seconds of one iteration, from those of its products and of moving its data."""
    return (TRAINING if training else 1.0) * max(products_s, moved_s, CALLS_S)


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
    names = series_names(plan)
    times = _Replay(names, seconds)
    peaks = _Replay(names, lambda planned, known, _: scaled_bytes(planned, known))
    cases = {planned.case.key: planned for planned in plan}
    blocks: dict[Block, list[Planned]] = {}
    for planned in plan:
        blocks.setdefault(planned.block, []).append(planned)
    cannot = {key for key, planned in cases.items() if planned.refusal}
    for run in runs:
        case = cases.get(run.case)
        if case is None:
            continue
        if run.outcome is Outcome.UNSUPPORTED:
            cannot.add(run.case)
        # it was decided not to start the case
        if run.outcome is not Outcome.OK and not run.elapsed_s:
            times.decide(case)
            peaks.decide(case)
        if run.samples and run.samples[0].lap is not None:
            # a whole block was decided on before its first run
            for other in blocks.pop(case.block, ()):
                times.of(other)
                peaks.of(other)
        if run.part is Part.TIME and run.samples:
            times.learn(case, median(s.seconds for s in run.samples))
        if peak := run.values.get("allocated_peak_bytes"):
            peaks.learn(case, peak)
    nothing = (math.nan, math.nan)
    return {
        key: nothing if key in cannot else (times.of(case), peaks.of(case))
        for key, case in cases.items()
    }


class _Replay:
    """Predictions of one quantity, each from what was known of the case's series by then."""

    def __init__(
        self, names: Mapping[str, str], rule: Callable[[Planned, Known, float], float]
    ) -> None:
        self.names, self.rule = names, rule
        self.known: dict[str, Known] = {}  # by series
        self.factors: list[float] = []  # times over their first guesses
        self.predicted: dict[str, float] = {}
        self.measured: set[str] = set()

    def of(self, planned: Planned) -> float:
        """The prediction for the case, made now if there is none yet."""
        key = planned.case.key
        if key not in self.predicted:
            factor = median(self.factors) if self.factors else 1.0
            known = self.known.get(self.names[key], [])
            self.predicted[key] = self.rule(planned, known, factor) or math.nan
        return self.predicted[key]

    def decide(self, planned: Planned) -> None:
        """Predict a case again, unless it was measured before."""
        if planned.case.key not in self.measured:
            self.predicted.pop(planned.case.key, None)
            self.of(planned)

    def learn(self, planned: Planned, value: float) -> None:
        """Take a measured value into account."""
        self.of(planned)
        self.measured.add(planned.case.key)
        self.known.setdefault(self.names[planned.case.key], []).append((planned, value))
        if planned.predicted_s:
            self.factors.append(value / planned.predicted_s)
