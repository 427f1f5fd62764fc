"""Two sweeps case by case: times where the machines agree, counted metrics always.

Two sweeps are not paired: their rounds show how processes vary, but not what changed between
sessions on different days, so no interval includes a difference of the machine itself. With one
round not even the variation between processes is known; such a ratio has no interval, and the
verdict is `unsure`.

Cases are matched by everything except device and dtype, of which a sweep has one each: FLOPs and
parameters depend on neither.
"""

import math
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from attnbench.analysis.report import Analysis
from attnbench.analysis.scaling import CrossoverKind, crossovers
from attnbench.errors import UsageError
from attnbench.metrics import COUNTED, MEMORY, RACED, TABLE, TIME, Join
from attnbench.records import Fingerprint, Outcome, Sweep
from attnbench.statistics.curves import half_widths
from attnbench.statistics.estimate import IntervalKind, p_value
from attnbench.statistics.verdict import THRESHOLD, Verdict, count_verdict, discoveries, judge

# the metrics of `COUNTED` that are the same on every device and in every dtype
PORTABLE = tuple(key for key in COUNTED if TABLE[key].join is Join.EXACT)

ENDS = ("_1", "_2")  # of the columns of two sweeps side by side

# columns in which two plans can differ, in the order of an error message
AXES = (
    *("mechanism", "options", "seq_len", "tokens", "width", "heads", "layers"),
    *("level", "mode", "causal", "padding"),
)
PLURALS = MappingProxyType({"mechanism": "mechanisms", "seq_len": "lengths"})

FILLED = "in one of them the state was filled without a prompt"  # so peaks do not compare


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two sweeps, the second against the first.

    `rows`: one per case and metric, with the columns case, series, mode, seq_len, metric, first,
    second, ratio (second over first) with low and high, verdict, reason, cause (why a side without
    a number did not start the case). `curves`: one per series and mode, see `curve_changes`.
    `moved`: see `moved_crossovers`. `refusals`: why times cannot be compared, or nothing.
    """

    rows: pd.DataFrame
    curves: pd.DataFrame
    moved: pd.DataFrame
    refusals: tuple[str, ...]


def compare(
    first: Analysis, second: Analysis, *, anyway: bool = False, threshold: float = THRESHOLD
) -> Comparison:
    """The second sweep against the first; `anyway` compares times even across machines.

    If a baseline was chosen for the first sweep, only crossovers with it count.
    Raises `UsageError` if the sweeps have no case in common.
    """
    refused = refusals(first.sweep, second.sweep)
    both = _paired(first.cases, second.cases)
    requests = (first.sweep.request, second.sweep.request)
    one, other = ((request.device.partition(":")[0], request.dtype) for request in requests)
    raced = RACED if anyway or not refused else ()
    counted = COUNTED if one == other or anyway else PORTABLE
    parts = [_raced(both, key, threshold) for key in raced]
    parts += [_counted(both, key) for key in counted]
    rows = pd.concat([part for part in parts if len(part)] or parts, ignore_index=True)
    return Comparison(
        rows=rows,
        curves=curve_changes(rows, threshold),
        moved=moved_crossovers(first, second),
        refusals=refused,
    )


def curve_changes(rows: pd.DataFrame, threshold: float) -> pd.DataFrame:
    """One row per series and mode: the geometric mean of its time ratios, with its verdict.

    The interval is Student's over the lengths, so a change that all lengths share is found even in
    sweeps too noisy for a verdict at any one of them; ratios without an interval are left out.
    `rows` are those of a comparison. Columns: series, mode, lengths, ratio, low, high, verdict.
    """
    known = rows[(rows["metric"] == TIME) & rows["low"].notna()]
    table = []
    for (series, mode), same in known.groupby(["series", "mode"], sort=False):
        own = np.log(same["ratio"].astype(float))
        error = float(own.std(ddof=1)) / len(own) ** 0.5 if len(own) > 1 else np.nan
        table.append((series, mode, len(own), float(own.mean()), error))
    curves = pd.DataFrame(table, columns=["series", "mode", "lengths", "log", "error"])
    logs = curves.pop("log").astype(float)
    found = _judged(logs, curves.pop("error"), curves["lengths"] - 1, threshold)
    return curves.assign(ratio=np.exp(logs), **found)


def moved_crossovers(one: Analysis, other: Analysis) -> pd.DataFrame:
    """Crossovers of two sweeps whose 95 % confidence intervals do not overlap.

    Each answer is an interval of lengths: a series that is always cheaper crosses at or before the
    shortest length, one that never is crosses after the longest, and "cannot tell" may cross
    anywhere. Only lengths that both sweeps timed in several rounds count, so a longer sweep moves
    no crossover. Crossovers depend on ratios within a sweep, so the machines may differ.

    Columns: mode, series, other, then answer, length, low, high, from_len and to_len of each sweep
    with the suffixes _1 and _2.
    """
    cases = (one.cases, other.cases)
    repeated = [set(c.loc[c["interval_kind"] == IntervalKind.ROUNDS, "match"]) for c in cases]
    first, second = (c[c["match"].isin(set.intersection(*repeated))] for c in cases)
    # series of the second sweep take the names of the first, as a form may have changed along one
    names = second["match"].map(dict(zip(first["match"], first["series"], strict=True)))
    renamed = other.ratios.named(dict(zip(second["series"], names, strict=True)))
    tables = (
        crossovers(first, baseline=one.against, ratios=one.ratios),
        crossovers(second.assign(series=names), baseline=one.against, ratios=renamed),
    )
    on = ["mode", "metric", "series", "other"]
    both = tables[0].merge(tables[1], on=on, suffixes=ENDS).drop(columns="metric")
    spans = [[_bounds(row, end) for end in ENDS] for _, row in both.iterrows()]
    moved = [a[1] < b[0] or b[1] < a[0] for a, b in spans]
    return _one_order(both[np.array(moved, bool)]).reset_index(drop=True)


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
    compared = (sweep.request.settings.fields_with("compared") for sweep in (first, second))
    for (name, one, _), (_, other, _) in zip(*compared, strict=True):
        if one != other:
            flag = f"--{name.replace('_', '-')}: in one of them only"
            reasons.append(flag if isinstance(one, bool) else f"{name}: {one} and {other}")
    if first.request.dtype != second.request.dtype:
        reasons.append(f"dtype: {first.request.dtype} and {second.request.dtype}")
    return tuple(reasons)


def _paired(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """One row per case of either sweep. Raises `UsageError` with differences if none is in both."""
    if not set(first["match"]) & set(second["match"]):
        raise UsageError(
            f"the two sweeps have no case in common ({_differences(first, second)});"
            " sweep again with the options of one of them"
        )
    both = first.merge(second, on="match", how="outer", suffixes=ENDS, sort=False)
    for name in ("case", "series", "mode", "seq_len"):
        both[name] = both[name + "_1"].fillna(both[name + "_2"])
    both["seq_len"] = both["seq_len"].astype(int)
    order = {key: i for i, key in enumerate([*first["match"], *second["match"]][::-1])}
    return both.sort_values("match", key=lambda keys: -keys.map(order)).reset_index(drop=True)


def _differences(first: pd.DataFrame, second: pd.DataFrame) -> str:
    """The axes on which two plans share no value; if there are none, those on which they differ."""
    axes = [(PLURALS.get(name, name), set(first[name]), set(second[name])) for name in AXES]
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


def _raced(both: pd.DataFrame, metric: str, threshold: float) -> pd.DataFrame:
    """The rows of a metric that has intervals."""
    *_, error, df = TABLE[metric].estimate
    rows = _rows(both, metric)
    errors = pd.Series(np.hypot(both[f"{error}_1"], both[f"{error}_2"]))
    dfs = both[[f"{df}_1", f"{df}_2"]].min(axis=1)
    repeated = [both[f"interval_kind{end}"] == IntervalKind.ROUNDS for end in ENDS]
    known = dfs.notna() & repeated[0] & repeated[1]
    found = _judged(np.log(rows["ratio"]), errors.where(known), dfs, threshold)
    reasons = [
        _one_round(*rounds) if call == Verdict.UNSURE and not all(rounds) else reason
        for call, reason, *rounds in zip(found["verdict"], rows["reason"], *repeated, strict=True)
    ]
    return rows.assign(**found, reason=reasons)


def _judged(logs: ArrayLike, errors: ArrayLike, dfs: ArrayLike, threshold: float) -> dict[str, Any]:
    """The columns low, high and verdict of log ratios; errors are NaN where unknown."""
    logs, errors, dfs = (np.asarray(values, float) for values in (logs, errors, dfs))
    real = discoveries([p_value(*row) for row in zip(logs, errors, dfs, strict=True)])
    halves = half_widths(errors, dfs)
    low, high = logs - halves, logs + halves
    calls = [judge(*row, threshold) for row in zip(logs, low, high, real, strict=True)]
    return {"low": np.exp(low), "high": np.exp(high), "verdict": [str(call) for call in calls]}


def _one_round(first: bool, second: bool) -> str:
    """Why times cannot be judged where a sweep, or both, ran only one round of the case."""
    where = "the second sweep" if first else "the first sweep" if second else "either sweep"
    return f"variation between processes was not measured in {where}: one round only"


def _counted(both: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The rows of a counted metric, where at least one side has it."""
    rows = _rows(both, metric)
    rows = rows[rows["first"].notna() | rows["second"].notna()]
    first, second = ([None if pd.isna(n) else n for n in rows[s]] for s in ("first", "second"))
    calls = [str(count_verdict(a, b, TABLE[metric])) for a, b in zip(first, second, strict=True)]
    judged = rows.assign(low=rows["ratio"], high=rows["ratio"], verdict=calls)
    if metric == MEMORY:
        unlike = (both["filled_1"] != both["filled_2"])[rows.index] & rows["ratio"].notna()
        judged.loc[unlike, ["verdict", "reason"]] = str(Verdict.UNSURE), FILLED
    return judged


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
        low=math.nan,
        high=math.nan,
        verdict=str(Verdict.MISSING),
        reason=[_reason(row, metric) for _, row in both.iterrows()],
        cause=both["cause_1"].where(first.isna(), both["cause_2"]).fillna(""),
    )


def _reason(row: pd.Series, metric: str) -> str:
    reasons = []
    for end, name in zip(ENDS, ("first", "second"), strict=True):
        if not pd.isna(row[metric + end]):
            continue
        if pd.isna(row["outcome" + end]):
            reasons.append(f"not in the {name} sweep")
        elif row["outcome" + end] == Outcome.OK:
            reasons.append(f"not measured in the {name}")
        else:
            reasons.append(f"{row['outcome' + end]} in the {name}: {row['reason' + end]}")
    return "; ".join(reasons)


def _bounds(row: pd.Series, end: str) -> tuple[float, float]:
    """The lengths between which the crossing lies."""
    match row["answer" + end]:
        case CrossoverKind.ALWAYS:
            return 0.0, row["from_len" + end]
        case CrossoverKind.NEVER:
            return row["to_len" + end], np.inf
        case CrossoverKind.FROM:
            return row["low" + end], row["high" + end]
    return 0.0, np.inf


def _one_order(rows: pd.DataFrame) -> pd.DataFrame:
    """One of the two orders of each pair: the one with a length, else the first."""
    crosses = (rows["answer_1"] == CrossoverKind.FROM) | (rows["answer_2"] == CrossoverKind.FROM)
    ordered = pd.concat([rows[crosses], rows[~crosses]])
    columns = (ordered[name] for name in ("mode", "series", "other"))
    pairs = [(mode, *sorted(pair)) for mode, *pair in zip(*columns, strict=True)]
    return ordered[~pd.Series(pairs, ordered.index, dtype=object).duplicated()].sort_index()
