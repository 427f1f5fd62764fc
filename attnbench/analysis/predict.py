"""What a case will take before it runs: seconds of one iteration, and bytes.

The first guess is from FLOPs alone; every measured case makes the next guess better.

The journal stores first guesses only. `replayed` works the better ones out again, from the runs in
the order in which they were written: before a case first ran, or where it was decided not to start
it, from all runs before. A case without any run is predicted from all there is; one that cannot
run, not at all.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from operator import attrgetter
from statistics import median

from attnbench.records import Case, Mode, Outcome, Part, Planned, Run, Workload

Known = list[tuple[Planned, float]]

FLOPS_PER_S = 12e9  # of one thread, for a machine not yet measured
GPU_FLOPS_PER_S = 15e12
TRAINING = 3.0  # forward and backward over forward: two products for each one

# what all lengths of a curve have in common, in one mode and in any
NAMES = tuple(f.name for f in fields(Workload) if f.name not in ("batch", "seq_len"))
OWN_MODE = attrgetter(*NAMES)
ANY_MODE = attrgetter(*(name for name in NAMES if name != "mode"))


def seconds(
    line: Planned, measured: Sequence[tuple[Planned, float]], off: float | None = None
) -> float:
    """Predicted seconds of one iteration, from the nearest shorter lengths of the same series.

    Two of them give a rate for the core and one for the rest; one gives a single rate. Without
    any, the other mode's, and without that the ratio by which all guesses so far were off: `off`,
    or that of the measured ones.
    """
    nearest = sorted(
        (pair for pair in measured if alike(pair[0].case, line.case)),
        key=lambda pair: pair[0].case.workload.seq_len,
    )
    if len(nearest) >= 2 and (fitted := two_rates(line, *nearest[-2:])):
        return fitted
    if nearest:
        known, took = nearest[-1]
        return took * line.flops / known.flops
    other = [(known, took) for known, took in measured if alike(known.case, line.case, ANY_MODE)]
    if other:
        known, took = max(other, key=lambda pair: pair[0].case.workload.seq_len)
        factor = TRAINING if line.case.workload.mode is Mode.TRAINING else 1 / TRAINING
        return factor * took * line.flops / known.flops
    if off is None:
        off = median(took / known.predicted_s for known, took in measured) if measured else 1.0
    return off * line.predicted_s


def two_rates(line: Planned, a: tuple[Planned, float], b: tuple[Planned, float]) -> float | None:
    """Seconds if core and rest each have their own rate; None where the two do not tell."""
    (one, took_one), (two, took_two) = a, b
    rest_one, rest_two = (p.flops - p.core_flops for p in (one, two))
    determinant = rest_one * two.core_flops - rest_two * one.core_flops
    if abs(determinant) < 0.05 * one.flops * two.flops:
        return None
    rest = (took_one * two.core_flops - took_two * one.core_flops) / determinant
    core = (rest_one * took_two - rest_two * took_one) / determinant
    if rest < 0 or core < 0:
        return None
    return rest * (line.flops - line.core_flops) + core * line.core_flops


def alike(a: Case, b: Case, same: Callable[[Workload], object] = OWN_MODE) -> bool:
    """Whether two cases differ in length, batch and form alone, and with `ANY_MODE` in mode."""
    return (a.mechanism, a.options) == (b.mechanism, b.options) and (
        same(a.workload) == same(b.workload)
    )


def first_guess(flops: int, training: bool, device: str, threads: int) -> float:
    """Seconds of one iteration on a machine of which nothing is known."""
    rate = FLOPS_PER_S * threads if device == "cpu" else GPU_FLOPS_PER_S
    return (TRAINING if training else 1.0) * flops / rate


def scaled_bytes(line: Planned, measured: Sequence[tuple[Planned, float]]) -> float:
    """Predicted bytes, corrected by how far off the prediction was at the nearest length."""
    near = [(known, peak) for known, peak in measured if alike(known.case, line.case)]
    near = [(known, peak) for known, peak in near if known.case.form == line.case.form]
    if not near:
        return line.predicted_bytes
    known, peak = max(near, key=lambda pair: pair[0].case.workload.seq_len)
    return line.predicted_bytes * peak / known.predicted_bytes


def replayed(plan: Sequence[Planned], runs: Sequence[Run]) -> dict[str, tuple[float, float]]:
    """Seconds of one iteration and peak bytes predicted of each case, by its key.

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
        # no process ran for it
        if run.outcome is not Outcome.OK and not run.elapsed_s:
            times.decide(run.case, case)
            peaks.decide(run.case, case)
        if run.samples and run.samples[0].lap is not None:
            # a block was decided on before the first of it ran
            for other in blocks.pop(_block(case), ()):
                times.of(other.case.key, other)
                peaks.of(other.case.key, other)
        if run.part is Part.TIME and run.samples:
            times.learn(run.case, case, median(s.wall_s / s.iterations for s in run.samples))
        if peak := run.values.get("allocated_peak_bytes"):
            peaks.learn(run.case, case, peak)
    nothing = (math.nan, math.nan)
    return {
        key: nothing if key in cannot else (times.of(key, case), peaks.of(key, case))
        for key, case in cases.items()
    }


class _History:
    """Predictions of one quantity; a mechanism with other options teaches only a first guess."""

    def __init__(self, rule: Callable[[Planned, Known], float]) -> None:
        self.rule = rule
        self.known: Known = []
        self.near: dict[tuple[object, ...], Known] = {}
        self.predicted: dict[str, float] = {}
        self.measured: set[str] = set()

    def of(self, key: str, case: Planned) -> float:
        """What is or was predicted of the case with that key."""
        if key not in self.predicted:
            near = self.near.get(_group(case), self.known)
            self.predicted[key] = self.rule(case, near) or math.nan
        return self.predicted[key]

    def decide(self, key: str, case: Planned) -> None:
        """Predict a case anew, unless it was measured before."""
        if key not in self.measured:
            self.predicted.pop(key, None)
            self.of(key, case)

    def learn(self, key: str, case: Planned, value: float) -> None:
        self.of(key, case)
        self.measured.add(key)
        self.known.append((case, value))
        self.near.setdefault(_group(case), []).append((case, value))


def _block(planned: Planned) -> tuple[str, int]:
    """Mode and length: what is raced together."""
    return str(planned.case.workload.mode), planned.case.workload.seq_len


def _group(planned: Planned) -> tuple[object, ...]:
    return planned.case.mechanism, planned.case.options
