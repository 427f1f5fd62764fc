"""What a sweep could foresee of each case just before it ran, and how far off that was.

The journal stores the first guess of each case, made from FLOPs alone before anything ran. What the
sweep made of it as it went on is worked out again here, from the runs in the order in which they
were written: before each case's first run, or where it was decided not to start it, by the rules of
`predict`, from all runs before. The reason of a case that was not started names the same numbers.
A case that nothing is written of is foreseen from all there is; one that cannot run, not at all.
"""

import math
from collections.abc import Callable, Sequence
from statistics import median

import numpy as np
import pandas as pd

from attnbench.analysis import predict
from attnbench.records import Outcome, Part, Planned, Run

Known = list[tuple[Planned, float]]

# what is scored: a quantity, its measured column, its first guess and its refined one
SCORED = (
    ("time", "time_s", "predicted_s", "refined_s"),
    ("memory", "allocated_peak_bytes", "predicted_bytes", "refined_bytes"),
)


def refined(plan: Sequence[Planned], runs: Sequence[Run]) -> dict[str, tuple[float, float]]:
    """Seconds of one iteration and peak bytes of each case, by its key; NaN if it cannot run."""
    times, peaks = _Foresight(predict.seconds), _Foresight(predict.scaled_bytes)
    lines = {line.case.key: line for line in plan}
    blocks: dict[tuple[str, int], list[Planned]] = {}
    for planned in plan:
        blocks.setdefault(block(planned), []).append(planned)
    cannot = {key for key, line in lines.items() if line.refusal}
    for run in runs:
        line = lines.get(run.case)
        if line is None:
            continue
        if run.outcome is Outcome.UNSUPPORTED:
            cannot.add(run.case)
        # no process ran for it
        if run.outcome is not Outcome.OK and not run.elapsed_s:
            times.decide(run.case, line)
            peaks.decide(run.case, line)
        if run.samples and run.samples[0].lap is not None:
            # a block was decided on before the first of it ran
            for other in blocks.pop(block(line), ()):
                times.of(other.case.key, other)
                peaks.of(other.case.key, other)
        if run.part is Part.TIME and run.samples:
            times.learn(run.case, line, median(s.seconds for s in run.samples))
        if peak := run.values.get("allocated_peak_bytes"):
            peaks.learn(run.case, line, peak)
    nothing = (math.nan, math.nan)
    return {
        key: nothing if key in cannot else (times.of(key, line), peaks.of(key, line))
        for key, line in lines.items()
    }


def block(line: Planned) -> tuple[str, int]:
    """Mode and length: what is raced together."""
    return str(line.case.workload.mode), line.case.workload.seq_len


def scores(summary: pd.DataFrame) -> pd.DataFrame:
    """One row per mechanism and quantity: by which factor its predictions were off.

    Columns: mechanism, quantity, cases, first_median, first_worst, refined_median, refined_worst.
    The mechanism "all" comes last. Factors are at least 1, whichever way a prediction was off.
    """
    groups = [*summary.groupby("mechanism", sort=False), ("all", summary)]
    rows = []
    for name, cases in groups:
        for quantity, measured, *predictions in SCORED:
            off = [np.abs(np.log(cases[measured] / cases[by])).dropna() for by in predictions]
            if len(off[0]):
                factors = [float(np.exp(f)) for o in off for f in (o.median(), o.max())]
                rows.append((name, quantity, len(off[0]), *factors))
    ends = ["first_median", "first_worst", "refined_median", "refined_worst"]
    return pd.DataFrame(rows, columns=["mechanism", "quantity", "cases", *ends])


class _Foresight:
    """One quantity as it becomes known; mechanisms with other options teach only a first guess."""

    def __init__(self, rule: Callable[[Planned, Known], float]) -> None:
        self.rule = rule
        self.known: Known = []
        self.near: dict[tuple[object, ...], Known] = {}
        self.foreseen: dict[str, float] = {}
        self.measured: set[str] = set()

    def of(self, key: str, line: Planned) -> float:
        """What is or was foreseen of a case; `key` is its own."""
        if key not in self.foreseen:
            near = self.near.get(_group(line), self.known)
            self.foreseen[key] = self.rule(line, near) or np.nan
        return self.foreseen[key]

    def decide(self, key: str, line: Planned) -> None:
        """Foresee a case anew, unless it was measured before."""
        if key not in self.measured:
            self.foreseen.pop(key, None)
            self.of(key, line)

    def learn(self, key: str, line: Planned, value: float) -> None:
        self.of(key, line)
        self.measured.add(key)
        self.known.append((line, value))
        self.near.setdefault(_group(line), []).append((line, value))


def _group(line: Planned) -> tuple[object, ...]:
    return line.case.mechanism, line.case.options
