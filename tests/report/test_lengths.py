"""Series of different lengths in one sweep: every number is in the column of its length."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbench.analysis.conclusions import Answer, Basis, Conclusion, Question, Scope, Value
from attnbench.analysis.report import analyse
from attnbench.records import units
from attnbench.report.conclusions import faster_at
from attnbench.report.growth_tables import crossovers
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


SWEEP = (128, 256, 512, 1024)


def pair(a, b, answer, lengths=SWEEP, mode="training", **ends):
    return Conclusion(
        question=Question.FASTER_FROM,
        answer=answer,
        mode=mode,
        scope=Scope(lengths=lengths, of_sweep=SWEEP),
        basis=Basis.MEASURED,
        series=(a,),
        against=(b,),
        value=Value(**ends),
    )


BOTH = {"point": 300.0, "low": 256.0, "high": 512.0}


@pytest.mark.parametrize(
    ("conclusion", "text", "value"),
    [
        (pair("a", "b", Answer.ALL), "all", None),
        (pair("a", "b", Answer.NEVER), "never", None),
        (pair("a", "b", Answer.FASTER_AT, (128, 256)), "128 to 256", None),
        (pair("a", "b", Answer.SLOWER_AT, (128,)), "slower at 128", None),
        (pair("a", "b", Answer.FASTER_AT, (128, 512)), "128 and 512", None),
        (pair("a", "b", Answer.FROM, **BOTH), "from 300 [256, 512]", 300.0),
        (pair("a", "b", Answer.FROM, SWEEP[:3], **BOTH), "from 300 [256, 512] to 512", 300.0),
        (pair("a", "b", Answer.FROM, high=256.0), "from ≤ 256", None),
        (pair("a", "b", Answer.UP_TO, **BOTH), "up to 300 [256, 512]", None),
        (pair("a", "b", Answer.SLOWER_FROM, high=512.0), "slower from 512", None),
        (pair("a", "b", Answer.NOT_KNOWN), "not known", None),
        (pair("a", "b", Answer.NOT_KNOWN, ()), "not known", None),
        (None, "–", None),
    ],
)
def test_where_one_is_faster_is_said_with_the_lengths_that_were_measured(conclusion, text, value):
    cell = faster_at(conclusion)
    assert (cell.text, cell.value) == (text, value)


def test_pairs_that_cross_are_listed_and_what_is_faster_than_a_baseline():
    found = crossovers(
        [
            pair("a", "b", Answer.FROM, **BOTH),
            pair("b", "a", Answer.UP_TO, **BOTH),
            pair("a", "c", Answer.ALL),
            pair("b", "c", Answer.FASTER_AT, (128, 256)),
            pair("c", "b", Answer.SLOWER_AT, (128, 256)),
            pair("b", "d", Answer.NOT_KNOWN),
            pair("a", "b", Answer.NOT_KNOWN, mode="inference"),
        ],
        ["c"],
    )
    assert [[cell.text for cell in row] for row in found.rows] == [
        ["a", "b", "from 300 [256, 512]", "not known"],
        ["a", "c", "all", "–"],
        ["b", "c", "128 to 256", "–"],
    ]
