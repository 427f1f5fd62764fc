"""Series of different lengths in one sweep: every number is in the column of its length."""

import math
from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbench import units
from attnbench.analysis.report import analyse
from attnbench.records import Sweep
from attnbench.render.growth_tables import crossovers
from attnbench.render.page import report_tables
from tests.sweeps import sweep

LENGTHS = (128, 512, 1000, 4096)
WHOLE = sweep(("transformer", "fastformer", "linformer"), lengths=LENGTHS, samples=3, rounds=2)
CASES = range(len(WHOLE.plan))


def without(gone: set[int], unmeasured: set[int] = frozenset()) -> Sweep:
    """The sweep without some of its cases, and without the runs of others."""
    plan = tuple(line for index, line in enumerate(WHOLE.plan) if index not in gone)
    silent = {WHOLE.plan[index].case.key for index in {*gone, *unmeasured}}
    runs = tuple(run for run in WHOLE.runs if run.case not in silent)
    return replace(WHOLE, plan=plan, runs=runs)


def expected(cases, name: str, mode: str, against: str | None) -> dict[tuple[str, str], float]:
    """The numbers that a table must show, by series and heading of the column."""
    rows = cases[(cases["mode"] == mode) & cases["time_s"].notna()]
    times = {(row["series"], row["seq_len"]): row["time_s"] for _, row in rows.iterrows()}
    tokens = {(row["series"], row["seq_len"]): row["tokens"] for _, row in rows.iterrows()}
    peaks = {
        (row["series"], row["seq_len"]): row["allocated_peak_bytes"] for _, row in rows.iterrows()
    }
    values = {
        "latency": {key: 1e3 * t * 8192 / tokens[key] for key, t in times.items()},
        "memory": {key: peak / units.MIB for key, peak in peaks.items()},
        "speedup": {
            (series, n): times[against, n] / t
            for (series, n), t in times.items()
            if series != against and (against, n) in times
        },
    }[name]
    return {(series, units.count(n)): value for (series, n), value in values.items()}


def shown(table) -> dict[tuple[str, str], float]:
    return {
        (row[0].text, heading): cell.value
        for row in table.rows
        for heading, cell in zip(table.columns[1:], row[1:], strict=True)
        if cell.value is not None
    }


@settings(max_examples=15)
@given(
    st.sets(st.sampled_from(CASES), max_size=len(CASES) - 1),
    st.sets(st.sampled_from(CASES)),
)
def test_every_number_is_in_the_column_of_its_length(gone, unmeasured):
    agree(analyse(without(gone, unmeasured)))


def agree(made):
    """Every table has the numbers of the cases."""
    for table in report_tables(made):
        assert {len(row) for row in table.rows} <= {len(table.columns)}
        kind, _, mode = table.name.partition("_")
        if kind in ("latency", "memory", "speedup"):
            found, truth = shown(table), expected(made.cases, kind, mode, *made.baselines)
            assert found.keys() == truth.keys()
            assert all(math.isclose(found[key], truth[key]) for key in truth)


@pytest.mark.parametrize(("length", "shown"), [(128.0, "≤ 128"), (512.0, "512")])
def test_a_crossing_at_the_shortest_length_may_be_before_it(length, shown):
    ends = {"answer": "from", "length": length, "low": length, "high": length, "from_len": 128}
    pair = {"series": "a", "other": "b", "mode": "training", "metric": "allocated_peak_bytes"}
    ((*_, cell),) = crossovers(pd.DataFrame([{**pair, **ends}])).rows
    assert (cell.text, cell.value) == (shown, None if length == 128 else length)
