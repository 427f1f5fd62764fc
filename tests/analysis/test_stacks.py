"""Stacks beside their layers: sums, ratios by round, and the tables of both."""

import math
from dataclasses import replace

import pytest

from attnbench.analysis.report import analyse
from attnbench.analysis.stacks import BUILT, SUM
from attnbench.records import Case, Mode
from attnbench.render import page
from tests.sweeps import raced, sweep

STACK = "stack(3*fastformer+linformer)"
TRUE = {"fastformer": 0.1, "linformer": 0.3, STACK: 0.5}  # so the layers sum to 1.2 of the stack


def stacked(series=("fastformer", "linformer", STACK), level_layers=1, noise=0.01):
    whole = sweep(series, lengths=(128, 256), modes=(Mode.INFERENCE,), rounds=4)
    plan = []
    for planned in whole.plan:
        if planned.case.mechanism == STACK:
            planned = replace(planned, layers=("fastformer:eager",) * 3 + ("linformer:eager",))
        plan.append(planned)

    def laps(case: Case, round_: int):
        # a slow round is slow for all; of the layers, one is off by a little in each
        slow = 1 + round_
        off = math.exp(noise * math.cos(3 * round_)) if case.mechanism == "linformer" else 1.0
        return dict.fromkeys(range(4), slow * off * TRUE[case.mechanism])

    return analyse(raced(replace(whole, plan=tuple(plan)), laps))


@pytest.fixture(scope="module")
def found():
    return stacked()


def rows(found, length=256):
    frame = found.stacks
    return frame[frame["seq_len"] == length].set_index("layer").to_dict("index")


def test_the_sum_of_the_layers_is_taken_round_by_round(found):
    kinds = rows(found)
    # at level model a quarter of the layers is a quarter of the classifier
    assert kinds["fastformer:eager"]["ratio"] == pytest.approx(3 / 4 * 0.1 / 0.5)
    total = kinds[SUM]
    assert total["ratio"] == pytest.approx((3 * 0.1 + 0.3) / 4 / 0.5, rel=0.02)
    assert total["low"] < total["ratio"] < total["high"] < 1.02 * total["ratio"]
    assert total["layers"] == kinds[BUILT]["layers"] == 4
    assert total["time_s"] == pytest.approx(
        kinds["fastformer:eager"]["time_s"] + kinds["linformer:eager"]["time_s"]
    )


def test_a_layer_that_is_no_series_leaves_the_sum_unknown():
    kinds = rows(stacked(("fastformer", STACK)))
    assert kinds["fastformer:eager"]["ratio"] == pytest.approx(0.15)
    assert math.isnan(kinds["linformer:eager"]["time_s"])
    assert math.isnan(kinds[SUM]["ratio"])
    assert kinds[BUILT]["time_s"] > 0


def test_the_tables_say_what_each_kind_takes_and_the_sum_at_each_length(found):
    tables = {table.name: table for table in page.report_tables(found)}
    shown = [[cell.text for cell in row] for row in tables["stacks"].rows]
    assert [row[3] for row in shown] == ["3 × fastformer:eager", "linformer:eager", SUM, BUILT]
    assert {row[2] for row in shown} == {"256"}
    sums = tables["stack_sum_inference"]
    assert sums.columns == ("Mechanism", "128", "256")
    assert len(sums.rows) == 1
    assert "stacks" in [table.name for table in page.headlines(found, tables.values())]


def test_a_sweep_without_stacks_has_no_such_tables():
    tables = page.report_tables(analyse(sweep(("fastformer",), lengths=(128,))))
    assert not [table.name for table in tables if "stack" in table.name]
