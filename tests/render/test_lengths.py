"""Series of different lengths in one sweep: every number is in the column of its length."""

import math
from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbench import units
from attnbench.analysis.report import analyse
from attnbench.render.growth_tables import crossovers
from attnbench.render.page import report_tables
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
            assert shown == pytest.approx(dict(expected(cases, kind, *made.baselines)))


def pair(a, b, answer, length=math.nan, mode="training"):
    ends = {"answer": answer, "length": length, "low": length, "high": length, "from_len": 128}
    return {"series": a, "other": b, "mode": mode, **ends}


@pytest.mark.parametrize(("length", "shown"), [(128.0, "≤ 128"), (512.0, "512")])
def test_a_crossing_at_the_shortest_length_may_be_before_it(length, shown):
    ((*_, cell),) = crossovers(pd.DataFrame([pair("a", "b", "from", length)])).rows
    assert (cell.text, cell.value) == (shown, None if length == 128 else length)


def test_pairs_that_cross_are_listed_and_what_is_always_cheaper_than_a_baseline():
    rows = [
        *(pair("a", "b", "from", 512.0), pair("b", "a", "never"), pair("a", "c", "always")),
        *(pair("b", "c", "always"), pair("c", "b", "never"), pair("b", "d", "cannot tell")),
        pair("a", "b", "cannot tell", mode="inference"),
    ]
    found = crossovers(pd.DataFrame(rows), ["c"]).rows
    assert [[cell.text for cell in row] for row in found] == [
        ["a", "b", "512", "cannot tell"],
        ["a", "c", "always", "–"],
        ["b", "c", "always", "–"],
    ]
