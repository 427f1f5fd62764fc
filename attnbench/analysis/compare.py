"""Two sweeps case by case: times where the machines agree, counted metrics always.

Two sweeps are not paired: their rounds show how processes vary, but not what changed between
sessions on different days. With one round not even the variation between processes is known; such
a ratio has no interval, and the verdict is `unsure`. Cases are matched by all but the device.
"""

from dataclasses import asdict, dataclass
from itertools import product

import numpy as np
import pandas as pd

from attnbench.analysis.report import Analysis
from attnbench.errors import UsageError
from attnbench.metrics import COUNTED, MEMORY, RACED, TABLE, Join
from attnbench.records import Outcome, Sweep
from attnbench.statistics.estimate import IntervalKind, half_widths, p_value
from attnbench.statistics.verdict import Verdict, count_verdict, discoveries, judge

# the metrics of `COUNTED` that are the same on every device
PORTABLE = tuple(key for key in COUNTED if TABLE[key].join is Join.EXACT)
ENDS, SIDES = ("_1", "_2"), ("first", "second")  # of the columns of two sweeps side by side
IDENTITY = ("case", "series", "mode", "seq_len")
ONCE = "one round only, so variation between processes is not known"
FILLED = "in one of them the state was filled without a prompt"  # so peaks do not compare


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two sweeps, the second against the first.

    `rows`: one per case and metric, with the columns case, series, mode, seq_len, metric, first,
    second, ratio (second over first) with low and high, verdict, reason. `refusals`: why times
    cannot be compared, or nothing.
    """

    rows: pd.DataFrame
    refusals: tuple[str, ...]


def compare(first: Analysis, second: Analysis, *, anyway: bool = False) -> Comparison:
    """The second sweep against the first; `anyway` compares times even across machines.

    Raises `UsageError` if the sweeps have no case in common.
    """
    refused = refusals(first.sweep, second.sweep)
    elsewhere = any(why.startswith("device: ") for why in refused) and not anyway
    both = _paired(first.cases, second.cases)
    keys = (*(RACED if anyway or not refused else ()), *(PORTABLE if elsewhere else COUNTED))
    rows = pd.concat([_judged(both, key) for key in keys], ignore_index=True)
    return Comparison(rows=rows, refusals=refused)


def refusals(first: Sweep, second: Sweep) -> tuple[str, ...]:
    """Why times of the two cannot be compared: `torch: 2.12.0 and 2.13.0`."""
    sides = product(_conditions(first), _conditions(second))
    found = (
        f"{n}: {value} and {b[n]}" for a, b in sides for n, value in a.items() if value != b[n]
    )
    return tuple(dict.fromkeys(found))


def _conditions(sweep: Sweep) -> list[dict[str, object]]:
    """What has to agree, of each session, by its name."""
    settings = {name: value for name, value, _ in sweep.request.settings.fields_with("compared")}
    return [asdict(s.fingerprint) | {"TF32": s.tf32} | settings for s in sweep.sessions]


def _paired(*sweeps: pd.DataFrame) -> pd.DataFrame:
    """One row per case of either sweep. Raises `UsageError` if none is in both."""
    first, second = (cases.assign(match=cases["match"] + cases["dtype"]) for cases in sweeps)
    if not {*first["match"]} & {*second["match"]}:
        raise UsageError(
            f"the two sweeps have no case in common, such as {first['case'].iloc[0]} and"
            f" {second['case'].iloc[0]}; sweep again with the options of one of them"
        )
    # a merge sorts the cases, which stay in the order of the plans
    order = [*dict.fromkeys((*first["match"], *second["match"]))]
    both = first.merge(second, on="match", how="outer", suffixes=ENDS)
    both = both.set_index("match").loc[order].reset_index()
    known = {name: both[f"{name}_1"].fillna(both[f"{name}_2"]) for name in IDENTITY}
    ended = {f"ended{end}": [_ended(row, end) for _, row in both.iterrows()] for end in ENDS}
    both = pd.concat([both, pd.DataFrame(known | ended)], axis="columns")
    return both.astype({"seq_len": int})


def _ended(row: pd.Series, end: str) -> str:
    """Why a sweep lacks a number of a case: `no case`, `budget`, `failed: no such table`."""
    if pd.isna(outcome := row[f"outcome{end}"]) or outcome == Outcome.OK:
        return "no case" if pd.isna(outcome) else "not measured"
    # the reason of a cause has a prediction, which differs by length
    return str(row[f"cause{end}"] or f"{outcome}: {row[f'reason{end}']}")


def _judged(both: pd.DataFrame, key: str) -> pd.DataFrame:
    """The rows of a metric: by the intervals of the ratios if it has any, else as a count."""
    rows, metric = _rows(both, key), TABLE[key]
    if not metric.interval:
        rows = rows.dropna(subset=["first", "second"], how="all")
        sides = ([None if pd.isna(n) else n for n in rows[side]] for side in SIDES)
        calls = [str(count_verdict(a, b, metric)) for a, b in zip(*sides, strict=True)]
        rows = rows.assign(low=rows["ratio"], high=rows["ratio"], verdict=calls)
        unlike = (both["filled_1"] != both["filled_2"])[rows.index] & rows["ratio"].notna()
        rows.loc[unlike & (key == MEMORY), ["verdict", "reason"]] = str(Verdict.UNSURE), FILLED
        return rows
    *_, error, df = metric.estimate
    once = np.any([both[f"interval_kind{end}"] != IntervalKind.ROUNDS for end in ENDS], axis=0)
    errors = pd.Series(np.hypot(both[f"{error}_1"], both[f"{error}_2"])).mask(once)
    logs, dfs = np.log(rows["ratio"]), both[[f"{df}_1", f"{df}_2"]].min(axis=1)
    real = discoveries([p_value(*row) for row in zip(logs, errors, dfs, strict=True)])
    low, high = (logs + side * half_widths(errors, dfs) for side in (-1, 1))
    calls = [str(judge(*row)) for row in zip(logs, low, high, real, strict=True)]
    rows.loc[once & logs.notna(), "reason"] = ONCE
    return rows.assign(low=np.exp(low), high=np.exp(high), verdict=calls)


def _rows(both: pd.DataFrame, key: str) -> pd.DataFrame:
    """First, second and their ratio; where one is missing, the reason says which and why."""
    first, second = (both[key + end].astype(float) for end in ENDS)
    gone = [
        (both[f"ended{end}"] + f" in the {side}").where(own.isna(), "")
        for end, side, own in zip(ENDS, SIDES, (first, second), strict=True)
    ]
    return both[[*IDENTITY]].assign(
        metric=key,
        first=first,
        second=second,
        ratio=(second / first.where(first > 0)).where(first != second, 1.0),
        reason=["; ".join(filter(None, pair)) for pair in zip(*gone, strict=True)],
    )
