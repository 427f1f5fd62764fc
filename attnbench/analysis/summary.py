"""One row per case of a sweep, with its outcome and costs, and summaries of these rows."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from statistics import median
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from attnbench.analysis.costs import peak_rates
from attnbench.analysis.extrapolation import predictions
from attnbench.analysis.roofline import too_fast, with_bounds
from attnbench.analysis.statistics.curves import series_names, size_names
from attnbench.analysis.statistics.estimate import Estimate, median_interval, over_rounds
from attnbench.analysis.suspects import suspects
from attnbench.records import (
    MISSING,
    Outcome,
    Part,
    Planned,
    Run,
    Sample,
    Sweep,
    Workload,
    canonical,
    metrics,
    notes,
    options_text,
)

# names for annotations elsewhere, so that other wings need not import pandas
Frame = pd.DataFrame
Row = pd.Series

NOTED = notes.column_notes()

DEVICE_TIME = "device time"  # in place of a `Clock`

# what is known of a case before it runs, unless its module has no card
WORK = ("parameters", "flops", "projection_flops", "core_flops", "shell_flops")

# seconds of one iteration, from a sample
SAMPLED: Mapping[str, Callable[[Sample], float]] = MappingProxyType(
    {
        metrics.TIME: lambda s: s.seconds,
        "wall_s": lambda s: s.unheld_wall_s,
        # a process that waits for a GPU spins
        "cpu_s": lambda s: math.nan if s.device_s is not None else s.cpu_s / s.iterations,
        "device_s": lambda s: (s.device_s or math.nan) / s.iterations,
        "enqueue_s": lambda s: math.nan if s.enqueue_s is None else s.enqueue_s / s.iterations,
        "forward_s": lambda s: s.forward_s / s.iterations,
        "backward_s": lambda s: s.backward_s / s.iterations,
        "step_s": lambda s: s.step_s / s.iterations,
        "forward_backward_s": lambda s: (s.forward_s + s.backward_s) / s.iterations,
    }
)


def summary(sweep: Sweep) -> pd.DataFrame:
    """One row per case, in the order of the plan; values that were not measured are NaN.

    Identity: case, key, match (equal for the same case on another device or in another dtype),
    series, sizes (those in its name), mechanism, form, options, batch, seq_len, width, heads,
    level, mode, dtype, device, causal, padding, tokens, outputs (the tokens that an iteration
    computes), layers. Costs of a stack are those of one layer of its depth, `Planned.depth`.
    batch_scale is the factor from an iteration to the sweep's tokens per batch,
    1 in decode and if the batch is fixed. Ending: outcome, cause (a `Cause` if the case was not
    started), reason, rounds. Recorded, or empty: attention_kernel, arithmetic (see
    `devices.kernels`), number_types in which operators gave results, uncounted (memory that peaks
    miss), suspect (why no case of the series is ranked).

    Costs that rounds repeat (`Metric.interval`) have the columns `Metric.estimate`: the value, its
    95 % confidence interval, the standard error of its logarithm and the degrees of freedom. Those
    of the time of one iteration are time_s, time_lo_s, time_hi_s, time_log_se and time_df, by the
    `clock` of the sweep ("CPU time", "wall time", or "device time" on a GPU) on `threads` threads;
    interval_kind is an `IntervalKind`, samples their number. token_s is time_s / outputs, and
    tokens_per_s its inverse. launch_bound: the host enqueues an iteration more slowly than the GPU
    runs it, or waits for the GPU in between. shows_launches: the time includes launches. In decode
    an iteration is one step, and state_bytes is the state after N tokens. filled: with random
    numbers, not by a prompt.

    Work: `WORK`; for a module without a card, only what was counted. Predictions of what was
    not measured, from all that was: predicted_s and predicted_bytes (`extrapolation`); NaN for
    others. Then a column for every other metric.
    """
    names = series_names(sweep.plan)
    sizes = size_names(sweep.plan)
    runs = _by_case(sweep.runs)
    cases = [runs.get(planned.case.key, []) for planned in sweep.plan]
    every = [*zip(sweep.plan, cases, _estimates(cases), strict=True)]
    times = {p.case.key: t for p, _, estimates in every if (t := estimates[metrics.TIME].point) > 0}
    rates = next((peak_rates(session) for session in sweep.sessions), None)
    predicted = predictions(sweep.plan, sweep.runs, times, rates)
    timed_by = {"clock": clock(sweep), "threads": sweep.request.settings.threads}
    rows = [
        _identity(planned, names[planned.case.key], sweep.request.batch_tokens)
        | {"sizes": sizes[planned.case.key]}
        | _ending(planned, case_runs)
        | _noted(case_runs)
        | timed_by
        | _columns(estimates, planned.case.workload)
        | {
            "interval_kind": str(estimates[metrics.TIME].kind),
            "samples": sum(len(run.samples) for run in timed_runs(case_runs)),
            "launch_bound": launch_bound(timed_runs(case_runs)),
            "shows_launches": any(map(shows_launches, timed_runs(case_runs))),
        }
        | {key: getattr(planned, key) if planned.declared else math.nan for key in WORK}
        | {"filled": planned.filled}
        | predicted.get(planned.case.key, dict.fromkeys(metrics.PREDICTED.values(), math.nan))
        | _values(case_runs)
        for planned, case_runs, estimates in every
    ]
    table = pd.DataFrame(rows)
    unmeasured = (row.key for row in metrics.ROWS if row.key not in table)
    table = with_bounds(table.reindex(columns=[*table.columns, *unmeasured]), sweep)
    return table if table.empty else _per_layer(_with_suspects(table, sweep, names))


def _with_suspects(table: pd.DataFrame, sweep: Sweep, names: Mapping[str, str]) -> pd.DataFrame:
    """The table with the column `suspect`: why no case of the series is ranked, or empty.

    names: of the series of each case, by the case's key
    """
    signs = suspects(sweep.runs, names, too_fast(table, sweep))
    return table.assign(suspect=[signs.get(series, "") for series in table["series"]])


def _noted(runs: Sequence[Run]) -> dict[str, str]:
    """The notes of a case that are columns, each of its first run that has it, or empty."""
    return {
        note.value: next((run.notes[note] for run in runs if note in run.notes), "")
        for note in NOTED
    }


def _per_layer(cases: pd.DataFrame) -> pd.DataFrame:
    """The cases with the costs of each stack over its `depth`."""
    layers = {metrics.Better.LOWER: cases["depth"], metrics.Better.HIGHER: 1 / cases["depth"]}
    columns = {
        column: layers[row.better]
        for row in metrics.ROWS
        if row.of_a_layer
        for column in (row.estimate[:3] if row.interval else (row.key,))
    } | dict.fromkeys(metrics.PREDICTED.values(), cases["depth"])
    # in few pieces, which columns can be added to
    return cases.assign(**{name: cases[name] / by for name, by in columns.items()}).copy()


def clock(sweep: Sweep) -> str:
    """What times of the sweep are: "device time", or a `Clock` of the host."""
    samples = (sample for run in sweep.runs for sample in run.samples)
    on_device = any(sample.device_s is not None for sample in samples)
    return DEVICE_TIME if on_device else str(sweep.request.settings.clock)


def _by_case(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs of each case; of two for the same part and round, as after a resume, the later one."""
    by_case: dict[str, list[Run]] = {}
    for run in {(run.case, run.part, run.round): run for run in runs}.values():
        by_case.setdefault(run.case, []).append(run)
    return by_case


def timed_runs(runs: Sequence[Run]) -> list[Run]:
    """The runs that timed a case successfully, in order."""
    timed = (run for run in runs if run.part is Part.TIME and run.outcome is Outcome.OK)
    return [run for run in timed if run.samples]


def _estimates(cases: Sequence[Sequence[Run]]) -> list[dict[str, Estimate]]:
    """The estimates of each case, by metric, of what rounds repeat."""
    by_metric = {row.key: _estimated(row.key, cases) for row in metrics.ROWS if row.interval}
    return [
        dict(zip(by_metric, values, strict=True))
        for values in zip(*by_metric.values(), strict=True)
    ]


def _estimated(key: str, cases: Sequence[Sequence[Run]]) -> list[Estimate]:
    """A cost of each case: over rounds if any case was repeated, else within its one run."""
    samples = [[numbers for run in runs if (numbers := _numbers(key, run))] for runs in cases]
    rounds = [[median(numbers) for numbers in of_case] for of_case in samples]
    logs = [
        [math.log(n) for n in of_case] if min(of_case, default=0) > 0 else [] for of_case in rounds
    ]
    intervals = over_rounds(logs) or [
        median_interval(of_case[0]) if of_case else Estimate() for of_case in samples
    ]
    return [  # inference has no backward pass: its time is 0
        Estimate(point=min(of_case)) if of_case and not log else estimate
        for of_case, log, estimate in zip(rounds, logs, intervals, strict=True)
    ]


def _numbers(key: str, run: Run) -> list[float]:
    """What a successful run measured: a number of each sample, or one; none if it is unknown."""
    if run.outcome is not Outcome.OK:
        return []
    if key in SAMPLED:
        numbers = map(SAMPLED[key], run.samples)
        return [number for number in numbers if not math.isnan(number)]
    return [run.values[key]] if key in run.values else []


def _columns(estimates: dict[str, Estimate], workload: Workload) -> dict[str, float]:
    """The estimates of a case, with what follows from its time."""
    time = estimates[metrics.TIME]
    n = workload.outputs
    inverse = replace(time, point=n / time.point, low=n / time.high, high=n / time.low)
    token = replace(time, point=time.point / n, low=time.low / n, high=time.high / n)
    every = estimates | {"token_s": token, "tokens_per_s": inverse}
    columns = (
        zip(metrics.TABLE[key].estimate, (e.point, e.low, e.high, e.log_se, e.df), strict=True)
        for key, e in every.items()
    )
    return dict(chain.from_iterable(columns))


def _identity(planned: Planned, series: str, batch_tokens: int | None) -> dict[str, Any]:
    case = planned.case
    workload = planned.case.workload
    tokens = planned.case.workload.tokens
    fields = asdict(workload)
    shell = fields.pop("shell") or {}
    return {
        "case": str(case),
        "key": case.key,
        "match": canonical(asdict(replace(case, workload=replace(workload, device="", dtype="")))),
        "series": series,
        "mechanism": case.mechanism,
        "form": case.form,
        "options": options_text(case.options),
        **{name: str(value) if isinstance(value, str) else value for name, value in fields.items()},
        "tokens": tokens,
        "outputs": workload.outputs,
        "batch_scale": 1.0 if workload.steps else (batch_tokens or tokens) / tokens,
        "layers": shell.get("layers", 1),
        "depth": planned.depth,
    }


def _ending(planned: Planned, runs: Sequence[Run]) -> dict[str, Any]:
    """How the case ended: as its first unsuccessful run did, with timed runs first."""
    ordered = sorted(runs, key=lambda run: run.part is not Part.TIME)
    bad = next((run for run in ordered if run.outcome is not Outcome.OK), None)
    outcome = str(Outcome.OK)
    cause = ""
    reason = ""
    rounds = len(timed_runs(runs))
    if bad is not None:
        outcome = str(bad.outcome)
        cause = bad.cause or ""
        reason = bad.reason or "no reason given"
        reason = reason if bad.part is Part.TIME else f"{bad.part}: {reason}"
    elif planned.refusal and not rounds:
        outcome = str(Outcome.UNSUPPORTED)
        reason = planned.refusal
    elif not rounds:
        outcome = MISSING
        reason = "not run"
    return {"outcome": outcome, "cause": str(cause), "reason": reason, "rounds": rounds}


def launch_bound(runs: Sequence[Run]) -> bool:
    """Whether enqueuing takes longer than the device's work, or could not be hidden."""
    samples = [s for run in runs for s in run.samples if s.device_s and s.enqueue_s is not None]
    shares = [(s.enqueue_s or 0.0) / (s.device_s or 1.0) for s in samples]
    return any(map(shows_launches, runs)) or median(shares or [0.0]) > 1


def shows_launches(run: Run) -> bool:
    """Whether the device time of a run includes launches that could not be hidden."""
    return notes.Note.LAUNCHES in run.notes


def _values(runs: Sequence[Run]) -> dict[str, float]:
    """Single numbers of a case, combined over its runs as `metrics` defines.

    Counts from a run replace those of the plan, which are split into parts.
    """
    by_key: dict[str, list[float]] = {}
    for key, value in (
        pair for run in runs if run.outcome is Outcome.OK for pair in run.values.items()
    ):
        if not metrics.TABLE[key].interval:
            by_key.setdefault(key, []).append(value)
    values = {key: combine_runs(key, numbers) for key, numbers in by_key.items()}
    return values | dict.fromkeys(WORK[2:] if "flops" in by_key else (), math.nan)


def combine_runs(key: str, values: Sequence[float]) -> float:
    """The value of a case from those of its rounds, as the table of metrics defines; else NaN."""
    if not values:
        return math.nan
    return float(
        np.max(values) if metrics.TABLE[key].join is metrics.Join.LARGEST else np.median(values)
    )
