"""Predictions of the cost of a case: seconds of one iteration, and peak bytes.

The first guess uses FLOPs, bytes and the machine's peak rates; every measured case improves the
next prediction.

A sweep stores what it predicted of a case with the first run of the case, or with the decision not
to start it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from statistics import linear_regression, median
from typing import NamedTuple

from attnbench import modes
from attnbench.records import (
    PASSES,
    Case,
    Environment,
    Outcome,
    Part,
    Planned,
    Prediction,
    Run,
    Workload,
)
from attnbench.statistics.curves import series_names

Known = list[tuple[Planned, float]]

CALLS_S = 1e-4  # of some ten calls of torch, whatever they compute

# How many times longer than at the peak rates it takes to compute large products, to compute those
# of the core, and to move each number once. Fitted to the 368 cases of six sweeps on two cores: in
# all but one of these sweeps the median error is a factor of at most 1.65; that one has slow
# recurrences.
PRODUCTS, CORE, MOVED = 1.35, 2.8, 5.5

SLOPE_LENGTHS = 3  # measured lengths from which the costs of an undeclared module are predicted

# the fields that all lengths of a curve share in one mode
ALIKE = attrgetter(*(f.name for f in fields(Workload) if f.name not in ("batch", "seq_len")))


class Rates(NamedTuple):
    """Peak rates of a machine: FLOP/s of a large product, bytes/s of a large copy."""

    flops_per_s: float
    bytes_per_s: float

    @classmethod
    def measured(cls, here: Environment) -> "Rates | None":
        """Those of a machine; None where they were not measured."""
        if not here.matmul_flops or not here.copy_bytes:
            return None
        return cls(here.matmul_flops, here.copy_bytes)

    def first_guess(self, flops: int, core_flops: int, moved_bytes: int, mode: str) -> float:
        """Seconds of one iteration of so many FLOPs, of which the core has `core_flops`."""
        products_s = (PRODUCTS * (flops - core_flops) + CORE * core_flops) / self.flops_per_s
        forward_s = products_s + MOVED * moved_bytes / self.bytes_per_s + CALLS_S
        return modes.find(mode).forward_passes * forward_s


class Times:
    """Seconds of one iteration of each case, predicted from all that is measured so far.

    A case is predicted from its nearest measured kin: other lengths of its series, the series in
    the other mode, the other series of the mechanism, and then all mechanisms, first in the same
    mode. Of them the nearest lengths count: the first guess is multiplied by the median ratio of
    their measured times to their first guesses. `names` gives the series of each case; without
    `rates` the first guess is that of the plan.
    """

    def __init__(self, names: Mapping[str, str], rates: Rates | None = None) -> None:
        self.names, self.rates = names, rates
        self.measured: dict[str, float] = {}  # by case
        self.kin: dict[tuple[str, ...], dict[str, Planned]] = {}  # measured ones, by group and case

    def learn(self, planned: Planned, seconds: float) -> None:
        """Take a measured time into account, in place of an earlier one of the case."""
        key = planned.case.key
        self.measured[key] = seconds
        for group in self.groups(planned):
            self.kin.setdefault(group, {})[key] = planned

    def of(self, planned: Planned) -> float:
        """The last measured time of the case, else its prediction."""
        if planned.case.key in self.measured:
            return self.measured[planned.case.key]
        timed = self.curve(planned)
        if not planned.declared and len(timed) >= SLOPE_LENGTHS:
            return by_slope(planned, timed)
        if len(timed) >= 2 and (fitted := two_rates(planned, *timed[-2:])):
            return fitted
        groups = self.groups(planned)
        kin = next((self.kin[group] for group in groups if group in self.kin), {})
        return self.first_guess(planned) * self.correction(planned, kin.values())

    def curve(self, planned: Planned) -> Known:
        """The measured lengths of the case's series in its mode, from short to long."""
        series = self.kin.get(self.groups(planned)[0], {}).values()
        lengths = sorted((p for p in series if alike(p.case, planned.case)), key=seq_len)
        return [(known, self.measured[known.case.key]) for known in lengths]

    def unknown(self, planned: Planned) -> bool:
        """Whether a prediction would only be assumed; see `by_slope`."""
        return not planned.declared and len(self.curve(planned)) < SLOPE_LENGTHS

    def correction(self, planned: Planned, kin: Iterable[Planned]) -> float:
        """Measured over guessed, at the lengths that are nearest to the case's; 1 without any."""
        far: dict[float, list[float]] = {}
        for known in kin:
            distance = abs(math.log(seq_len(known) / seq_len(planned)))
            ratio = self.measured[known.case.key] / self.first_guess(known)
            far.setdefault(distance, []).append(ratio)
        return median(far[min(far)]) if far else 1.0

    def first_guess(self, planned: Planned) -> float:
        """Seconds before anything is measured; that of the plan where its bytes are unknown."""
        if self.rates is None or not planned.moved_bytes:
            return planned.predicted_s
        work = planned.flops, planned.core_flops, planned.moved_bytes
        return self.rates.first_guess(*work, planned.case.workload.mode)

    def groups(self, planned: Planned) -> tuple[tuple[str, ...], ...]:
        """Groups of kin, nearest first; no step is predicted from passes, nor passes from steps."""
        series, mode = self.names[planned.case.key], planned.case.workload.mode
        kind = "passes" if mode in PASSES else "steps"
        return (
            ("series", series, mode),
            ("series", series, kind),
            ("mechanism", planned.case.mechanism, kind),
            ("all", mode),
            ("all", kind),
        )


class Peaks:
    """Peak bytes of each case, predicted from the same form at the longest measured length."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names
        self.measured: dict[str, dict[str, tuple[Planned, float]]] = {}  # by series and case

    def learn(self, planned: Planned, peak_bytes: float) -> None:
        """Take a measured peak into account."""
        key = planned.case.key
        self.measured.setdefault(self.names[key], {})[key] = planned, peak_bytes

    def of(self, planned: Planned) -> float:
        """The prediction of the plan, corrected by its error at the longest measured length."""
        near = self.curve(planned)
        if not near:
            return planned.predicted_bytes
        if not planned.declared and len(near) >= SLOPE_LENGTHS:
            return by_slope(planned, near)
        known, peak = near[-1]
        return planned.predicted_bytes * peak / known.predicted_bytes

    def curve(self, planned: Planned) -> Known:
        """The measured lengths of the same form in its mode, from short to long."""
        series = self.measured.get(self.names[planned.case.key], {}).values()
        form = planned.case.form
        near = [(p, b) for p, b in series if alike(p.case, planned.case) and p.case.form == form]
        return sorted(near, key=lambda pair: seq_len(pair[0]))

    def unknown(self, planned: Planned) -> bool:
        """Whether a prediction would only be assumed; see `by_slope`."""
        return not planned.declared and len(self.curve(planned)) < SLOPE_LENGTHS


def by_slope(planned: Planned, curve: Known) -> float:
    """The cost of a case whose mechanism declares none, from the last measured lengths.

    A sequence is taken to cost a power of N, which is fitted to them. From fewer lengths than
    `SLOPE_LENGTHS` nothing is known: their costs in proportion to tokens only put cases in order.
    """
    last = curve[-SLOPE_LENGTHS:]
    lengths = [math.log(seq_len(known)) for known, _ in last]
    costs = [math.log(cost / known.case.workload.batch) for known, cost in last]
    slope, start = linear_regression(lengths, costs)
    return planned.case.workload.batch * math.exp(start + slope * math.log(seq_len(planned)))


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


def alike(a: Case, b: Case) -> bool:
    """Whether two cases differ at most in length, batch and form."""
    return (a.mechanism, a.options) == (b.mechanism, b.options) and (
        ALIKE(a.workload) == ALIKE(b.workload)
    )


def seq_len(planned: Planned) -> int:
    """The length of a case."""
    return planned.case.workload.seq_len


def predicted_costs(
    plan: Sequence[Planned], runs: Sequence[Run], rates: Rates | None = None
) -> dict[str, Prediction]:
    """The predicted cost of each case before it first ran, by its key; NaN if it cannot run.

    That of a case without a run is predicted here, from all that ran.
    """
    names, cases = series_names(plan), {planned.case.key: planned for planned in plan}
    times, peaks = Times(names, rates), Peaks(names)
    found: dict[str, Prediction] = {}
    for run in runs:
        if (planned := cases.get(run.case)) is None:
            continue
        if run.predicted:
            found[run.case] = run.predicted
        if run.part is Part.TIME and run.samples:
            times.learn(planned, median(s.seconds for s in run.samples))
        if peak := run.values.get("allocated_peak_bytes"):
            peaks.learn(planned, peak)
    for planned in plan:
        seconds, peak_bytes = times.of(planned), peaks.of(planned)
        if not seconds or times.unknown(planned) or planned.case.key in times.measured:
            seconds = math.nan
        if not peak_bytes or peaks.unknown(planned):
            peak_bytes = math.nan
        found.setdefault(planned.case.key, Prediction(seconds, peak_bytes))
    refused = {run.case for run in runs if run.outcome is Outcome.UNSUPPORTED}
    refused |= {planned.case.key for planned in plan if planned.refusal}
    return found | dict.fromkeys(refused & cases.keys(), Prediction(math.nan, math.nan))
