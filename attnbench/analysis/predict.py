"""What a case will take before it runs: seconds of one iteration, and bytes.

The first guess is from FLOPs alone; every measured case makes the next guess better.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields
from operator import attrgetter
from statistics import median

from attnbench.records import Case, Mode, Planned, Workload

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


def first_guess(flops: int, training: bool, flops_per_s: float) -> float:
    """Seconds of one iteration at a rate that was guessed."""
    return (TRAINING if training else 1.0) * flops / flops_per_s


def scaled_bytes(line: Planned, measured: Sequence[tuple[Planned, float]]) -> float:
    """Predicted bytes, corrected by how far off the prediction was at the nearest length."""
    near = [(known, peak) for known, peak in measured if alike(known.case, line.case)]
    near = [(known, peak) for known, peak in near if known.case.form == line.case.form]
    if not near:
        return line.predicted_bytes
    known, peak = max(near, key=lambda pair: pair[0].case.workload.seq_len)
    return line.predicted_bytes * peak / known.predicted_bytes
