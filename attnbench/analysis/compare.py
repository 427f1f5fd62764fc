"""Two sweeps case by case: times where the machines agree, counted metrics always.

Two sweeps are not paired: their rounds show how processes vary, but not what changed between
sessions on different days, so no interval includes a difference of the machine itself. With one
round not even the variation between processes is known; such a ratio has no interval, and the
verdict is `unsure`.

Cases are matched by everything except device and dtype, of which a sweep has one each: FLOPs and
parameters depend on neither.
"""

from dataclasses import dataclass, fields

import numpy as np
import pandas as pd

from attnbench.analysis.crossover import moved_crossovers
from attnbench.analysis.curves import half_widths
from attnbench.analysis.estimate import IntervalKind, p_value
from attnbench.analysis.report import Analysis
from attnbench.analysis.verdict import THRESHOLD, Verdict, of_count, verdicts
from attnbench.errors import UsageError
from attnbench.metrics import COUNTED, TABLE
from attnbench.records import Fingerprint, Outcome, Sweep

# the metrics of `COUNTED` that are the same on every device and in every dtype
PORTABLE = ("parameters", "flops")

COLUMNS = (
    *("case", "series", "mode", "seq_len", "metric"),
    *("first", "second", "ratio", "low", "high", "verdict", "reason", "cause"),
)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two sweeps, the second against the first.

    `rows`: one per case and metric, with the columns case, series, mode, seq_len, metric, first,
    second, ratio (second over first) with low and high, verdict, reason, cause (why the side that
    lacks the number was not started). `curves`: one per series and mode, see `along`. `moved`: see
    `crossover.moved_crossovers`. `refusals`: why times cannot be compared, or nothing.
    """

    rows: pd.DataFrame
    curves: pd.DataFrame
    moved: pd.DataFrame
    refusals: tuple[str, ...]


def compare(
    first: Analysis, second: Analysis, *, anyway: bool = False, threshold: float = THRESHOLD
) -> Comparison:
    """The second sweep against the first; `anyway` compares times even across machines.

    If a series was chosen to compare the first sweep with, only crossovers with it count.
    Raises `UsageError` if the sweeps have no case in common.
    """
    refused = refusals(first.sweep, second.sweep)
    both = _paired(first.cases, second.cases)
    same = _device_and_dtype(first.sweep) == _device_and_dtype(second.sweep)
    parts = [_counted(both, metric) for metric in (COUNTED if same or anyway else PORTABLE)]
    if anyway or not refused:
        parts.insert(0, _timed(both, threshold))
    rows = pd.concat([part for part in parts if len(part)])
    rows = rows.reindex(columns=list(COLUMNS)).reset_index(drop=True)
    cases, ratios = (first.cases, second.cases), (first.ratios, second.ratios)
    return Comparison(
        rows=rows,
        curves=along(rows, threshold),
        moved=moved_crossovers(cases, ratios, first.against),
        refusals=refused,
    )


def along(rows: pd.DataFrame, threshold: float = THRESHOLD) -> pd.DataFrame:
    """One row per series and mode: the geometric mean of its time ratios, with its verdict.

    The interval is Student's over the lengths, so a change that all lengths share is found even in
    sweeps too noisy for a verdict at any one of them; ratios without an interval are left out.
    `rows` are those of a comparison. Columns: series, mode, lengths, ratio, low, high, verdict.
    """
    known = rows[(rows["metric"] == "time_s") & rows["low"].notna()]
    table = []
    for (series, mode), same in known.groupby(["series", "mode"], sort=False):
        logs = np.log(same["ratio"].astype(float))
        count, log = len(logs), float(logs.mean())
        error = float(logs.std(ddof=1)) / count**0.5 if count > 1 else np.nan
        (half,) = half_widths([error], count - 1)
        p = p_value(log, error, count - 1) if count > 1 else np.nan
        table.append((series, mode, count, log, log - half, log + half, p))
    columns = ["series", "mode", "lengths", "ratio", "low", "high", "p"]
    curves = pd.DataFrame(table, columns=columns)
    points, lows, highs, p_values = (list(curves[name]) for name in columns[3:])
    calls = verdicts(points, lows, highs, p_values, threshold)
    curves[["ratio", "low", "high"]] = np.exp(curves[["ratio", "low", "high"]].astype(float))
    return curves.drop(columns="p").assign(verdict=[str(call) for call in calls])


def refusals(first: Sweep, second: Sweep) -> tuple[str, ...]:
    """Why times of the two cannot be compared: `torch: 2.12.0 and 2.13.0`."""
    reasons = []
    for name in (field.name for field in fields(Fingerprint)):
        sides = [{getattr(s, name) for s in sweep.sessions} for sweep in (first, second)]
        if sides[0] != sides[1] or len(sides[0]) > 1:
            texts = [" or ".join(map(str, sorted(side, key=str))) for side in sides]
            reasons.append(f"{name}: {texts[0]} and {texts[1]}")
    tf32 = [{session.tf32 for session in sweep.sessions} for sweep in (first, second)]
    if tf32[0] != tf32[1]:
        reasons.append("TF32: on in one and off in the other")
    for name in ("cold", "cuda_graphs"):
        if getattr(first.request.settings, name) != getattr(second.request.settings, name):
            reasons.append(f"--{name.replace('_', '-')}: in one of them only")
    if first.request.dtype != second.request.dtype:
        reasons.append(f"dtype: {first.request.dtype} and {second.request.dtype}")
    return tuple(reasons)


# columns in which two plans can differ and their names, in the order of an error message
AXES = (
    *(("mechanism", "mechanisms"), ("options", "options"), ("seq_len", "lengths")),
    *(("tokens", "tokens"), ("width", "width"), ("heads", "heads"), ("layers", "layers")),
    *(("level", "level"), ("mode", "mode"), ("causal", "causal"), ("padding", "padding")),
)


def _paired(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """One row per case of either sweep. Raises `UsageError` with differences if none is in both."""
    if not set(first["match"]) & set(second["match"]):
        raise UsageError(
            f"the two sweeps have no case in common ({_differences(first, second)});"
            " sweep again with the options of one of them"
        )
    ends = ("_1", "_2")
    both = first.merge(second, on="match", how="outer", suffixes=ends, sort=False)
    for name in ("case", "series", "mode", "seq_len"):
        both[name] = both[name + ends[0]].fillna(both[name + ends[1]])
    both["seq_len"] = both["seq_len"].astype(int)
    order = {key: i for i, key in enumerate([*first["match"], *second["match"]][::-1])}
    return both.sort_values("match", key=lambda keys: -keys.map(order)).reset_index(drop=True)


def _differences(first: pd.DataFrame, second: pd.DataFrame) -> str:
    """The axes on which two plans share no value, or else those on which they differ at all."""
    axes = [(label, set(first[name]), set(second[name])) for name, label in AXES]
    disjoint = [axis for axis in axes if not axis[1] & axis[2]]
    differing = disjoint or [axis for axis in axes if axis[1] != axis[2]]
    texts = [f"{label} {_listed(a)} and {_listed(b)}" for label, a, b in differing]
    return ", ".join(texts) or "their settings differ"


def _listed(values: set[object]) -> str:
    """`64`, `128 or 256`, `128 to 65536`."""
    ordered = sorted(values, key=lambda value: (str(type(value)), value))
    if len(ordered) > 3 and all(isinstance(value, int) for value in ordered):
        return f"{ordered[0]} to {ordered[-1]}"
    return " or ".join(str(value) or "none" for value in ordered)


def _device_and_dtype(sweep: Sweep) -> tuple[str, str]:
    """Device and dtype, on which bytes and operators depend."""
    return sweep.request.device.partition(":")[0], sweep.request.dtype


def _timed(both: pd.DataFrame, threshold: float) -> pd.DataFrame:
    rows = _rows(both, "time_s")
    logs = np.log(rows["ratio"])
    errors = pd.Series(np.hypot(both["time_log_se_1"], both["time_log_se_2"]))
    dfs = both[["time_df_1", "time_df_2"]].min(axis=1)
    repeated = [both[f"interval_kind{end}"] == IntervalKind.ROUNDS for end in ("_1", "_2")]
    known = errors.notna() & dfs.notna() & repeated[0] & repeated[1]
    halves = half_widths(errors.where(known), dfs)
    p_values = [
        p_value(log, error, df) if ok else np.nan
        for log, error, df, ok in zip(logs, errors, dfs, known, strict=True)
    ]
    low, high = logs - halves, logs + halves
    calls = verdicts(logs, low, high, p_values, threshold)
    reasons = [
        _one_round(*rounds) if call is Verdict.UNSURE and not all(rounds) else reason
        for call, reason, *rounds in zip(calls, rows["reason"], *repeated, strict=True)
    ]
    bounds = {"low": np.exp(low), "high": np.exp(high)}
    return rows.assign(**bounds, verdict=[str(call) for call in calls], reason=reasons)


def _one_round(first: bool, second: bool) -> str:
    """Why times cannot be judged where a sweep, or both, ran only one round of the case."""
    where = "the second sweep" if first else "the first sweep" if second else "either sweep"
    return f"variation between processes was not measured in {where}: one round only"


def _counted(both: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The rows of a counted metric, where at least one side has it."""
    rows = _rows(both, metric)
    rows = rows[rows["first"].notna() | rows["second"].notna()]
    first, second = ([None if pd.isna(n) else n for n in rows[s]] for s in ("first", "second"))
    calls = [str(of_count(a, b, TABLE[metric])) for a, b in zip(first, second, strict=True)]
    return rows.assign(low=rows["ratio"], high=rows["ratio"], verdict=calls)


def _rows(both: pd.DataFrame, metric: str) -> pd.DataFrame:
    """First, second and their ratio; where one is missing, the reason says which and why."""
    first, second = both[f"{metric}_1"].astype(float), both[f"{metric}_2"].astype(float)
    same = (first == second) & first.notna()
    ratio = (second / first.where(first > 0)).where(~same, 1.0)
    return both[["case", "series", "mode", "seq_len"]].assign(
        metric=metric,
        first=first,
        second=second,
        ratio=ratio,
        verdict=str(Verdict.MISSING),
        reason=[_reason(row, metric) for _, row in both.iterrows()],
        cause=both["cause_1"].where(first.isna(), both["cause_2"]).fillna(""),
    )


def _reason(row: pd.Series, metric: str) -> str:
    reasons = []
    for end, name in (("_1", "first"), ("_2", "second")):
        if not pd.isna(row[metric + end]):
            continue
        if pd.isna(row["outcome" + end]):
            reasons.append(f"not in the {name} sweep")
        elif row["outcome" + end] == Outcome.OK:
            reasons.append(f"not measured in the {name}")
        else:
            reasons.append(f"{row['outcome' + end]} in the {name}: {row['reason' + end]}")
    return "; ".join(reasons)
