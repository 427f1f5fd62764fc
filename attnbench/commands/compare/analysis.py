"""Two sweeps case by case: costs and counts, and what else differs between the two.

Two sweeps are not paired: their rounds show how processes vary, but not what changed between
sessions on different days. With one round not even the variation between processes is known; such
a ratio has no interval, and the verdict is `unsure`, as where a time includes launches. Cases are
matched by all but the device.
"""

from collections.abc import Iterator, Mapping
from math import hypot, isnan, log, nan
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from attnbench.analysis import (
    Analysis,
    Answer,
    Conclusion,
    IntervalKind,
    Question,
    Scope,
    Value,
    Verdict,
)
from attnbench.analysis.concluding import basis, plans
from attnbench.analysis.statistics.estimate import from_log, p_value
from attnbench.analysis.statistics.verdict import count_verdict, discoveries, verdict_on
from attnbench.analysis.suspects import SHOWS_LAUNCHES
from attnbench.errors import UsageError
from attnbench.records import Sweep, metrics

CaseValues: TypeAlias = dict[Any, Any]  # of one case of a summary, or of a comparison

IDENTITY = ("case", "series", "mode", "seq_len")
COLUMNS = (*IDENTITY, "metric", "first", "second", "ratio", "low", "high", "verdict", "reason")

GRAPHS = "--cuda-graphs"  # what times iterations without their launches

# what a verdict says of a cost
ANSWERS: Mapping[str, Answer] = MappingProxyType({
    Verdict.SLOWER: Answer.COSTS_MORE,
    Verdict.FASTER: Answer.COSTS_LESS,
    Verdict.SAME: Answer.SAME,
})  # fmt: skip


class SweepComparison(NamedTuple):
    """Two sweeps: `COLUMNS` for each case and metric that one of them has, and what else `differs`.

    The ratio is the second over the first, with its ends low and high. `conclusions` say what
    became of each cost of a series, at the lengths where both measured it, the largest changes
    first. `suspects` are the series that are suspect in either sweep.
    """

    rows: pd.DataFrame
    differs: tuple[str, ...]
    conclusions: tuple[Conclusion, ...]
    suspects: frozenset[str]


def compare(first: Analysis, second: Analysis) -> SweepComparison:
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
    rows = [
        row
        for key in (*metrics.RACED, *metrics.COUNTED)
        for pair in pairs
        if (row := _row(key, *pair))
    ]
    for row, real in zip(rows, discoveries([row["p"] for row in rows]), strict=True):
        if "verdict" not in row:
            point, low, high = np.log([row["ratio"], row["low"], row["high"]])
            row["verdict"] = str(verdict_on(point, low, high, real))
    frame = pd.DataFrame(rows, columns=COLUMNS)
    return SweepComparison(
        rows=frame,
        differs=differences(first.sweep, second.sweep),
        conclusions=tuple(_changes(frame, (first, second))),
        suspects=frozenset({*first.suspects, *second.suspects}),
    )


def _changes(rows: pd.DataFrame, sides: tuple[Analysis, Analysis]) -> Iterator[Conclusion]:
    """What became of each cost, for lengths at which a series has the same answer and reason."""
    far = np.log(rows["ratio"].where(rows["ratio"] > 0)).abs()
    ordered = rows.assign(far=far).sort_values("far", ascending=False, kind="stable")
    lengths = {str(mode): cases["seq_len"] for mode, cases in rows.groupby("mode")}
    for keys, cases in ordered.groupby(
        ["series", "mode", "metric", "verdict", "reason"], sort=False
    ):
        series, mode, metric, verdict, reason = map(str, keys)
        missing = verdict == Verdict.MISSING
        answer = ANSWERS.get(verdict, Answer.NOT_KNOWN)
        median = cases.iloc[len(cases) // 2]
        at = tuple(sorted({*map(int, cases["seq_len"])}))
        value = Value() if missing else Value(
            point=float(median["ratio"]), low=float(median["low"]), high=float(median["high"])
        )  # fmt: skip
        yield Conclusion(
            question=Question.CHANGE,
            answer=answer,
            mode=mode,
            scope=Scope(
                lengths=() if missing else at,
                of_sweep=tuple(sorted({*map(int, lengths[mode])})),
            ),
            basis=basis(metric),
            series=(series,),
            value=value,
            quantity=metric,
            missing=at if missing else (),
            reason=reason,
            decided_by="" if answer is not Answer.NOT_KNOWN else _deciding(sides, cases, missing),
        )


def _deciding(sides: tuple[Analysis, Analysis], rows: pd.DataFrame, missing: bool) -> str:
    """The option of a sweep that would decide what became of these cases."""
    for side in sides:
        for plan in plans(side.judged, side.sweep.request):
            cases = plan.cases[plan.cases["case"].isin(rows["case"])]
            if cases.empty:
                continue
            if not missing:
                launches = rows["reason"].iloc[0] == SHOWS_LAUNCHES
                return GRAPHS if launches else plan.repeating()
            lost = cases[cases[rows["metric"].iloc[0]].isna()]
            places = zip(lost["series"], lost["seq_len"], strict=True)
            if option := plan.reaching(plan.endings[place] for place in places):
                return option
    return ""


def differences(*sweeps: Sweep) -> tuple[str, ...]:
    """How machines, versions and settings differ: `torch: 2.12.0 and 2.13.0`."""
    values_by_name: dict[str, dict[object, None]] = {}
    for whole, session in ((one, session) for one in sweeps for session in one.sessions):
        settings = {n: value for n, value, _ in whole.request.settings.fields_with("compared")}
        machine = dict(session.fingerprint) | {"TF32": session.tf32}
        for name, value in (machine | settings).items():
            values_by_name.setdefault(name, {})[value] = None
    differ = ((name, values) for name, values in values_by_name.items() if len(values) > 1)
    return tuple(f"{name}: {' and '.join(map(str, values))}" for name, values in differ)


def _row(key: str, a: CaseValues, b: CaseValues) -> CaseValues | None:
    """First, second and their ratio; where one is missing, the reason; None if both are."""
    metric = metrics.TABLE[key]
    first = float(a.get(key, nan))
    second = float(b.get(key, nan))
    unlike = key == metrics.MEMORY and a.get("filled") != b.get(
        "filled"
    )  # a filled state had no prompt
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
    launches = any(case.get("shows_launches") for case in (a, b))
    if launches and not isnan(ratio):
        ends = {"low": nan, "high": nan, "reason": SHOWS_LAUNCHES}
        return row | ends | {"verdict": str(Verdict.UNSURE)}
    se = df = nan
    if {case.get("interval_kind") for case in (a, b)} == {IntervalKind.ROUNDS}:
        *_, error, freedom = metric.estimate
        se = hypot(a[error], b[error])
        df = min(a[freedom], b[freedom])
    interval = from_log(log(ratio), se, df)
    return row | {"low": interval.low, "high": interval.high, "p": p_value(log(ratio), se, df)}
