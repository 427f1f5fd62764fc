"""Series of different lengths in one sweep: every number is in the column of its length."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbench.analysis.report import analyse
from attnbench.records import units
from attnbench.report.page import report_tables
from tests.sweeps import sweep

LENGTHS = (128, 512, 1000, 4096)
WHOLE = sweep(("transformer", "fastformer", "linformer"), lengths=LENGTHS, samples=3, rounds=2)
CASES = st.sampled_from(range(len(WHOLE.plan)))


def expected(cases, kind, against):
    """The numbers that a table of one mode must show, by series and heading of the column."""
    for _, row in cases.iterrows():
        value = {
            "latency": 1e3 * row["time_s"] * 8192 / row["tokens"],
            "memory": row["allocated_peak_bytes"] / units.MIB,
            "speedup": math.nan,
        }[kind]
        base = cases[(cases["series"] == against) & (cases["seq_len"] == row["seq_len"])]
        if kind == "speedup" and row["series"] != against and len(base):
            value = base["time_s"].iloc[0] / row["time_s"]
        if not math.isnan(value):
            yield (row["series"], units.count(row["seq_len"])), value


@pytest.mark.long
@settings(max_examples=15)
@given(st.sets(CASES, max_size=len(WHOLE.plan) - 1), st.sets(CASES))
def test_every_number_is_in_the_column_of_its_length(gone, unmeasured):
    """Without some cases of the plan, and without the runs of others."""
    plan = tuple(line for index, line in enumerate(WHOLE.plan) if index not in gone)
    silent = {WHOLE.plan[index].case.key for index in {*gone, *unmeasured}}
    runs = tuple(run for run in WHOLE.runs if run.case not in silent)
    made = analyse(replace(WHOLE, plan=plan, runs=runs))
    for table in report_tables(made):
        assert {len(row) for row in table.rows} <= {len(table.columns)}
        kind, _, mode = table.name.partition("_")
        if kind in ("latency", "memory", "speedup"):
            shown = {
                (row[0].text, heading): cell.value
                for row in table.rows
                for heading, cell in zip(table.columns[1:], row[1:], strict=True)
                if cell.value is not None
            }
            cases = made.cases[made.cases["mode"] == mode]
            assert shown == pytest.approx(
                dict(expected(cases, kind, *made.baselines_by_mode[mode]))
            )
