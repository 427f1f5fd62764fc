"""Stacks compared with their layers: what each kind of layer costs, and whether costs add up.

A layer by itself is a series of the same sweep. At level `model` that is a classifier with as many
layers, all of this kind, so that n of P layers take n / P of its time; at other levels they take
n times as long. Ratios to the built stack are taken round by round, from laps in which both took
turns.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from attnbench.analysis.summary import Frame, timed_runs
from attnbench.records import Level, Planned, Sweep
from attnbench.statistics.curves import series_names
from attnbench.statistics.estimate import Estimate, over_rounds
from attnbench.statistics.laps import Laps, by_pair, log_ratio, sweep_slope

SUM, BUILT = "sum of the layers", "as built"
COLUMNS = ("series", "mode", "seq_len", "layer", "layers", "time_s", "state_bytes", "peak_bytes")


def stacks(sweep: Sweep, cases: Frame) -> Frame:
    """One row per kind of layer of each stack, then `SUM` and `BUILT`, at each length and mode.

    `cases` are those of `summary`. Columns: series (of the stack), mode, seq_len, layer (a series,
    if the sweep has it), layers (how many), time_s and state_bytes (of all of these), peak_bytes
    (allocated, of the layer's series); ratio, low and high, to the time of the built stack. NaN
    where that is unknown.
    """
    slope = sweep_slope(sweep.runs, {planned.case.key: planned.block for planned in sweep.plan})
    laps = {(run.case, run.round): by_pair(run.samples, slope) for run in timed_runs(sweep.runs)}
    built = (planned for planned in sweep.plan if planned.layers)
    found = [row for planned in built for row in _rows(planned, sweep, cases, laps)]
    logs = [list(map(math.log, ratios)) for *_, ratios in found]
    alone = [Estimate(point=math.exp(own[0])) if own else Estimate() for own in logs]
    frame = pd.DataFrame([row[:-1] for row in found], columns=list(COLUMNS))
    estimates = over_rounds(logs) or alone
    bounds = {name: [getattr(e, name) for e in estimates] for name in ("point", "low", "high")}
    return frame.assign(**bounds).rename(columns={"point": "ratio"})


def _rows(
    planned: Planned, sweep: Sweep, cases: Frame, laps: Mapping[tuple[str, int], Laps]
) -> Iterator[tuple[Any, ...]]:
    """The rows of one stack at one length, each with its ratios of the rounds that have one."""
    w, counts = planned.case.workload, Counter(planned.layers)
    about = (series_names(sweep.plan)[planned.case.key], str(w.mode), w.seq_len)
    of_model = len(planned.layers) if w.level is Level.MODEL else 1
    keys = {p.case.series: p.case.key for p in sweep.plan if p.case.workload == w}
    known: dict[Any, Any] = cases.set_index("key").to_dict("index")

    def costs(key: str | None, share: float, layers: int) -> tuple[float, ...]:
        row = known.get(key, {})
        costs = (("time_s", share), ("state_bytes", layers), ("allocated_peak_bytes", 1))
        depth = row.get("depth", 1)  # over which the costs of a stack stand there
        return tuple(times * depth * row.get(name, math.nan) for name, times in costs)

    parts, shares = [], []
    for layer, count in counts.items():
        key, share = keys.get(layer), count / of_model
        parts.append(costs(key, share, count))
        of_round = _of_rounds(laps, key or "", planned.case.key)
        shares.append({round_: share * ratio for round_, ratio in of_round.items()})
        yield *about, layer, count, *parts[-1], shares[-1].values()
    times, states, _ = map(sum, zip(*parts, strict=True))
    shared = sorted(set.intersection(*map(set, shares)))
    sums = [sum(share[round_] for share in shares) for round_ in shared]
    count = len(planned.layers)
    yield *about, SUM, count, times, states, math.nan, sums
    yield *about, BUILT, count, *costs(planned.case.key, 1.0, 1), ()


def _of_rounds(laps: Mapping[tuple[str, int], Laps], layer: str, stack: str) -> dict[int, float]:
    """The time of one case over that of another, for each round in which they took turns."""
    rounds = [round_ for case, round_ in laps if case == layer and (stack, round_) in laps]
    logs = {round_: log_ratio(laps[layer, round_], laps[stack, round_]) for round_ in rounds}
    return {round_: math.exp(log) for round_, log in logs.items() if log is not None}
