"""One row per case of a sweep, with its outcome and costs, and summaries of these rows."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from statistics import median
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from attnbench.metrics import TABLE, Join
from attnbench.records import (
    ITEM_BYTES,
    Case,
    Outcome,
    Part,
    Planned,
    Prediction,
    Run,
    Sample,
    Sweep,
    Workload,
    canonical,
    options_text,
)
from attnbench.run.predict import Rates, predicted_costs
from attnbench.statistics.curves import series_names
from attnbench.statistics.estimate import Estimate, of_median, over_rounds

# names for annotations elsewhere, so that other rooms need not import pandas
Frame = pd.DataFrame
Row = pd.Series

MISSING = "missing"  # in place of an `Outcome`, for a case of the plan without a run

ALL = "all"  # mechanisms together

DEVICE_TIME = "device time"  # in place of a `Clock`

# notes that become columns: lists of names, joined by ", "
NOTED = ("attention_kernel", "attention_device_kernels", "number_types")

# columns of the time to the first token, in decode alone
FIRST = ("ttft_s", "ttft_lo_s", "ttft_hi_s", "ttft_log_se", "ttft_df")

# quantity, and the columns of measured values, first guesses and refined predictions
PREDICTED = (
    ("time", "time_s", "predicted_s", "refined_s"),
    ("memory", "allocated_peak_bytes", "predicted_bytes", "refined_bytes"),
)

# times in addition to `time_s`, as seconds of a whole sample
TIMES: Mapping[str, Callable[[Sample], float]] = MappingProxyType(
    {
        "wall_s": lambda s: s.unheld_wall_s * s.iterations,
        "cpu_s": lambda s: s.cpu_s,
        "device_s": lambda s: s.device_s or math.nan,
        "enqueue_s": lambda s: math.nan if s.enqueue_s is None else s.enqueue_s,
        "forward_s": lambda s: s.forward_s,
        "backward_s": lambda s: s.backward_s,
        "step_s": lambda s: s.step_s,
        "forward_backward_s": lambda s: s.forward_s + s.backward_s,
    }
)


def summary(sweep: Sweep) -> pd.DataFrame:
    """One row per case, in the order of the plan; values that were not measured are NaN.

    Identity: case, key, match (equal for the same case on another device or in another dtype),
    series, mechanism, form, options, batch, seq_len, width, heads, level, mode, dtype, device,
    causal, padding, tokens, outputs (the tokens that an iteration computes), layers. batch_scale is
    the factor from the time of an iteration to that of the sweep's tokens per batch, 1 in decode
    and if the batch is fixed. Ending: outcome, cause (a `Cause` if the case was not started),
    reason, rounds. Recorded, or empty: attention_kernel and attention_device_kernels (see
    `devices.kernels`), number_types in which operators gave results.

    Times of one iteration in seconds: time_s is by the `clock` of the sweep ("CPU time", "wall
    time", or "device time" on a GPU), on so many `threads`; time_lo_s and time_hi_s are its 95 %
    confidence interval, time_log_se and time_df the standard error of its
    logarithm and the degrees of freedom, interval_kind an `IntervalKind`, samples their number;
    wall_s, cpu_s, device_s, enqueue_s, forward_s, backward_s, step_s, forward_backward_s; token_s
    is time_s / outputs, and tokens_per_s its inverse. launch_bound: the host enqueues an iteration
    more slowly than the GPU runs it, or waits for the GPU in between.

    In decode an iteration is one step, so that tpot_s is time_s; ttft_s is the time to the first
    token, with ttft_lo_s, ttft_hi_s, ttft_log_se and ttft_df; state_bytes is what N tokens leave.
    filled: the state was filled with random numbers, not left by a prompt; filled_ratio is the time
    of a step from the one over that from the other, where both were taken.

    Work: parameters, flops, projection_flops, core_flops, shell_flops. Predictions: predicted_s and
    predicted_bytes from FLOPs alone; refined_s and refined_bytes as of when the case first ran.
    Then a column for each metric whose largest value counts, and for every other recorded number.
    """
    names = series_names(sweep.plan)
    runs = _by_case(sweep.runs)
    cases = [runs.get(planned.case.key, []) for planned in sweep.plan]
    measured = (Rates.measured(session) for session in sweep.sessions)
    predicted = predicted_costs(sweep.plan, sweep.runs, next(measured, None))
    timed_by = {"clock": clock(sweep), "threads": sweep.request.settings.threads}
    rows = [
        _identity(planned.case, names[planned.case.key], sweep.request.batch_tokens)
        | _ending(planned, own)
        | {name: next((r.notes[name] for r in own if name in r.notes), "") for name in NOTED}
        | timed_by
        | _times(own, estimate, planned.case.workload)
        | _planned(planned, predicted[planned.case.key])
        | _values(own)
        | (first_token or dict.fromkeys(FIRST * planned.case.workload.steps, math.nan))
        for planned, own, estimate, first_token in zip(
            sweep.plan, cases, _estimates(cases), _first_tokens(cases), strict=True
        )
    ]
    return pd.DataFrame(rows)


def clock(sweep: Sweep) -> str:
    """What times of the sweep are: "device time", or a `Clock` of the host."""
    samples = (sample for run in sweep.runs for sample in run.samples)
    on_device = any(sample.device_s is not None for sample in samples)
    return DEVICE_TIME if on_device else str(sweep.request.settings.clock)


def prediction_errors(summary: pd.DataFrame) -> pd.DataFrame:
    """Prediction errors of each mechanism as factors: at least 1, in either direction.

    Columns: mechanism (`ALL` comes last), quantity ("time" or "memory"), cases, first_median,
    first_worst, refined_median, refined_worst.
    """
    rows = []
    for name, cases in (*summary.groupby("mechanism", sort=False), (ALL, summary)):
        for quantity, measured, *predictions in PREDICTED:
            errors = [np.abs(np.log(cases[measured] / cases[by])).dropna() for by in predictions]
            if len(errors[0]):
                factors = [float(np.exp(log)) for e in errors for log in (e.median(), e.max())]
                rows.append((name, quantity, len(errors[0]), *factors))
    ends = ["first_median", "first_worst", "refined_median", "refined_worst"]
    return pd.DataFrame(rows, columns=["mechanism", "quantity", "cases", *ends])


def precision(summary: pd.DataFrame) -> pd.DataFrame:
    """The largest relative error of each form, least precise first; empty if none was measured.

    Columns: mechanism, form, options, error (of the output, against float64).
    """
    known = summary[summary["error"].notna()]
    worst = known.groupby(["mechanism", "form", "options"], sort=False)["error"].max()
    return worst.reset_index().sort_values("error", ascending=False, kind="stable")


def kernels(summary: pd.DataFrame) -> pd.DataFrame:
    """The kernels of fused attention, one row for each that a series used in a mode.

    Columns: series, form, mode, attention_kernel, attention_device_kernels; lengths, their number;
    shortest and longest.
    """
    groups = ["series", "form", "mode", "attention_kernel", "attention_device_kernels"]
    used = (summary["attention_kernel"] != "") | (summary["attention_device_kernels"] != "")
    found = summary[used].groupby(groups, sort=False)["seq_len"]
    return found.agg(lengths="count", shortest="min", longest="max").reset_index()


def other_types(summary: pd.DataFrame, dtype: str) -> dict[str, list[str]]:
    """The number types in which each mechanism computed, if they are not those of a `dtype` case.

    Types wider than `dtype` are meant: sums and softmax often use them.
    """
    found: dict[str, list[str]] = {}
    for mechanism, recorded in summary.groupby("mechanism", sort=False)["number_types"]:
        names = {name for text in recorded for name in text.split(", ") if name}
        wider = {name for name in names if ITEM_BYTES.get(name, 0) > ITEM_BYTES.get(dtype, 0)}
        if others := sorted(names - wider - {dtype}):
            found[str(mechanism)] = others
    return found


def timed_medians(runs: Sequence[Run]) -> list[tuple[str, float]]:
    """The case and the median seconds of one iteration of each timed run, in order."""
    return [(run.case, median(s.seconds for s in run.samples)) for run in timed_runs(runs)]


def _by_case(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs of each case; of two for the same part and round, as after a resume, the later."""
    last = {(run.case, run.part, run.round): run for run in runs}
    by_case: dict[str, list[Run]] = {}
    for run in last.values():
        by_case.setdefault(run.case, []).append(run)
    return by_case


def timed_runs(runs: Sequence[Run]) -> list[Run]:
    """The runs that timed a case successfully, in order."""
    timed = (run for run in runs if run.part is Part.TIME and run.outcome is Outcome.OK)
    return [run for run in timed if run.samples]


def _estimates(cases: Sequence[Sequence[Run]]) -> list[Estimate]:
    """The time of each case: over rounds if any case was repeated, else within its one run."""
    logs = [[math.log(middle) for _, middle in timed_medians(runs)] for runs in cases]
    timed = (timed_runs(runs) for runs in cases)
    return over_rounds(logs) or [
        of_median([s.seconds for s in runs[0].samples]) if runs else Estimate() for runs in timed
    ]


def _first_tokens(cases: Sequence[Sequence[Run]]) -> list[dict[str, float]]:
    """The time to the first token of each case that decodes, with its interval over rounds."""
    times = [[run.values["ttft_s"] for run in runs if "ttft_s" in run.values] for runs in cases]
    found = over_rounds([[math.log(ttft_s) for ttft_s in own] for own in times])
    found = found or [Estimate(point=own[0]) if own else Estimate() for own in times]
    values = ((e.point, e.low, e.high, e.log_se, e.df) for e in found)
    return [
        dict(zip(FIRST, row, strict=True)) if own else {}
        for own, row in zip(times, values, strict=True)
    ]


def _identity(case: Case, series: str, batch_tokens: int | None) -> dict[str, Any]:
    workload, tokens = case.workload, case.workload.tokens
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
    }


def _ending(planned: Planned, runs: Sequence[Run]) -> dict[str, Any]:
    """How the case ended: by the first run without success, timed runs first."""
    ordered = sorted(runs, key=lambda run: run.part is not Part.TIME)
    bad = next((run for run in ordered if run.outcome is not Outcome.OK), None)
    rounds = len({run.round for run in timed_runs(runs)})
    if bad is not None:
        part = "" if bad.part is Part.TIME else f"{bad.part}: "
        outcome, reason = str(bad.outcome), part + (bad.reason or "no reason given")
    elif planned.refusal and not rounds:
        outcome, reason = str(Outcome.UNSUPPORTED), planned.refusal
    elif not rounds:
        outcome, reason = MISSING, "not run"
    else:
        outcome, reason = str(Outcome.OK), ""
    cause = str(bad.cause) if bad is not None and bad.cause else ""
    return {"outcome": outcome, "cause": cause, "reason": reason, "rounds": rounds}


def _times(runs: Sequence[Run], estimate: Estimate, workload: Workload) -> dict[str, Any]:
    """All times of one iteration: the median of each round, joined over the rounds."""
    rounds = [run.samples for run in timed_runs(runs)]
    medians = {
        key: [median(time(s) / s.iterations for s in samples) for samples in rounds]
        for key, time in TIMES.items()
    }
    return {
        "time_s": estimate.point,
        "time_lo_s": estimate.low,
        "time_hi_s": estimate.high,
        "time_log_se": estimate.log_se,
        "time_df": estimate.df,
        "interval_kind": str(estimate.kind),
        "samples": sum(map(len, rounds)),
        **{key: joined(key, values) for key, values in medians.items()},
        "token_s": estimate.point / workload.outputs,
        "tokens_per_s": workload.outputs / estimate.point,
        **({"tpot_s": estimate.point} if workload.steps else {}),
        "launch_bound": launch_bound(runs),
    }


def launch_bound(runs: Sequence[Run]) -> bool:
    """Whether enqueuing takes longer than the device's work, or could not be hidden."""
    timed = timed_runs(runs)
    samples = [sample for run in timed for sample in run.samples]
    shares = [s.enqueue_s / s.device_s for s in samples if s.device_s and s.enqueue_s is not None]
    return any(map(shows_launches, timed)) or (bool(shares) and median(shares) > 1)


def shows_launches(run: Run) -> bool:
    """Whether the device time of a run includes launches that could not be hidden."""
    return "launches" in run.notes


def _values(runs: Sequence[Run]) -> dict[str, float]:
    """Single numbers of a case, joined over its runs as `metrics` defines.

    Counts by a run, of a module without a card, replace the guesses of the plan.
    """
    known: dict[str, list[float]] = {
        key: [] for key, metric in TABLE.items() if metric.join is Join.LARGEST
    }
    for run in runs:
        if run.outcome is Outcome.OK:
            for key, value in run.values.items():
                known.setdefault(key, []).append(value)
    guesses = ("projection_flops", "core_flops", "shell_flops") if "flops" in known else ()
    values = {key: joined(key, numbers) for key, numbers in known.items()}
    return values | dict.fromkeys(guesses, math.nan)


def _planned(planned: Planned, refined: Prediction) -> dict[str, float]:
    """Work and predictions: the first guess, and the refined one from before the case ran."""
    work = ("parameters", "flops", "projection_flops", "core_flops", "shell_flops")
    return {name: getattr(planned, name) for name in (*work, "filled")} | {
        "predicted_s": planned.predicted_s or math.nan,
        "predicted_bytes": planned.predicted_bytes or math.nan,
        "refined_s": refined.seconds,
        "refined_bytes": refined.bytes,
    }


def joined(key: str, values: Sequence[float]) -> float:
    """The value of a case from those of its rounds, as the table of metrics defines; NaN of none.

    A key that is not in the table comes from a later version.
    """
    if not values:
        return math.nan
    match TABLE[key].join if key in TABLE else Join.MEDIAN:
        case Join.GEOMETRIC_MEAN:
            # inference has no backward pass
            return math.exp(np.mean(np.log(values))) if all(values) else 0.0
        case Join.MEDIAN:
            return float(np.median(values))
        case Join.LARGEST | Join.EXACT:
            return float(np.max(values))
