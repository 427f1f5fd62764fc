"""Two sweeps case by case: costs and counts, and what else differs between the two.

Two sweeps are not paired: their rounds show how processes vary, but not what changed between
sessions on different days. With one round not even the variation between processes is known; such
a ratio has no interval, and the verdict is `unsure`. Cases are matched by all but the device.
"""

from math import hypot, isnan, log, nan
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from attnbench.analysis.report import Analysis
from attnbench.errors import UsageError
from attnbench.metrics import COUNTED, MEMORY, RACED, TABLE
from attnbench.records import Sweep
from attnbench.statistics.estimate import IntervalKind, from_log, p_value
from attnbench.statistics.verdict import count_verdict, discoveries, judge

Row: TypeAlias = dict[Any, Any]  # of one case of a summary, or of a comparison

IDENTITY = ("case", "series", "mode", "seq_len")
COLUMNS = (*IDENTITY, "metric", "first", "second", "ratio", "low", "high", "verdict", "reason")


class Comparison(NamedTuple):
    """Two sweeps: `COLUMNS` for each case and metric that one of them has, and what else `differs`.

    The ratio is the second over the first, with its ends low and high.
    """

    rows: pd.DataFrame
    differs: tuple[str, ...]


def compare(first: Analysis, second: Analysis) -> Comparison:
    """The second sweep against the first.

    Raises `UsageError` if the sweeps have no case in common.
    """
    a, b = (
        {case["match"] + case["dtype"]: case for case in side.cases.to_dict("records")}
        for side in (first, second)
    )
    if not a.keys() & b.keys():
        raise UsageError("no case is in both sweeps; sweep again with the options of one of them")
    pairs = [(a.get(case, {}), b.get(case, {})) for case in dict.fromkeys((*a, *b))]
    rows = [row for key in (*RACED, *COUNTED) for pair in pairs if (row := _row(key, *pair))]
    for row, real in zip(rows, discoveries([row["p"] for row in rows]), strict=True):
        if "verdict" not in row:
            point, low, high = np.log([row["ratio"], row["low"], row["high"]])
            row["verdict"] = str(judge(point, low, high, real))
    return Comparison(pd.DataFrame(rows, columns=COLUMNS), differences(first.sweep, second.sweep))


def differences(*sweeps: Sweep) -> tuple[str, ...]:
    """How machines, versions and settings differ: `torch: 2.12.0 and 2.13.0`."""
    known: dict[str, dict[object, None]] = {}
    for whole, session in ((one, session) for one in sweeps for session in one.sessions):
        settings = {n: value for n, value, _ in whole.request.settings.fields_with("compared")}
        machine = dict(session.fingerprint) | {"TF32": session.tf32}
        for name, value in (machine | settings).items():
            known.setdefault(name, {})[value] = None
    differ = ((name, values) for name, values in known.items() if len(values) > 1)
    return tuple(f"{name}: {' and '.join(map(str, values))}" for name, values in differ)


def _row(key: str, a: Row, b: Row) -> Row | None:
    """First, second and their ratio; where one is missing, the reason; None if both are."""
    metric, first, second = TABLE[key], float(a.get(key, nan)), float(b.get(key, nan))
    unlike = key == MEMORY and a.get("filled") != b.get("filled")  # a filled state had no prompt
    if unlike or (isnan(first) and isnan(second)):
        return None
    ratio = 1.0 if first == second else second / first if first > 0 else nan
    sides = (("first", a, first), ("second", b, second))
    gone = (
        f"{side}: {case.get('cause') or case.get('outcome', 'no case')}"
        for side, case, value in sides
        if isnan(value)
    )
    row = {name: (a or b)[name] for name in IDENTITY} | {"metric": key, "reason": ", ".join(gone)}
    row |= {"first": first, "second": second, "ratio": ratio, "low": ratio, "high": ratio, "p": nan}
    if not metric.interval:
        x, y = (None if isnan(value) else value for value in (first, second))
        return row | {"verdict": str(count_verdict(x, y, metric))}
    se = df = nan
    if {case.get("interval_kind") for case in (a, b)} == {IntervalKind.ROUNDS}:
        *_, error, freedom = metric.estimate
        se, df = hypot(a[error], b[error]), min(a[freedom], b[freedom])
    found = from_log(log(ratio), se, df)
    return row | {"low": found.low, "high": found.high, "p": p_value(log(ratio), se, df)}
