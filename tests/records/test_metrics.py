"""What the table of metrics says is what is done: judged, joined and printed by its rows."""

import math
from dataclasses import replace

import pytest

from attnbench.analysis.statistics.verdict import count_verdict
from attnbench.analysis.summary import combine_runs
from attnbench.records.metrics import COUNTED, DRAWN, RACED, TABLE, Better
from attnbench.report.phrases import verdict_label

EXACT, BYTES = ([k for k, row in TABLE.items() if row.tolerance == most] for most in (0.0, 0.01))


def test_every_row_says_what_it_is():
    assert all(key == row.key and row.label and row.description for key, row in TABLE.items())
    assert {"parameters", "flops", "operators", "allocated_peak_bytes"} <= {*COUNTED}
    assert set(COUNTED) <= {*EXACT, *BYTES}


def test_what_is_shown_or_compared_has_what_that_needs():
    shown = [row for row in TABLE.values() if row.figure or row.table]
    assert all(row.name for row in [*shown, *(TABLE[key] for key in RACED)])
    assert all(TABLE[key].better is Better.LOWER for key in RACED)
    assert [row.figure for row in DRAWN] == ["fig2", "memory"]
    assert set(RACED) & set(COUNTED) == set()


@pytest.mark.parametrize(
    ("keys", "first", "second", "verdict"),
    [
        ((*EXACT, *BYTES), 1000, 1100, "slower"),
        ((*EXACT, *BYTES), 1000, 900, "faster"),
        (EXACT, 1_000_000, 1_000_001, "slower"),
        (BYTES, 1000, 1010, "same"),
        (BYTES, 1000, 1011, "slower"),
        (BYTES, 1000, 989, "faster"),
        (BYTES, 0, 0, "same"),
        (BYTES, 0, 1, "slower"),
        (BYTES, 1, 0, "faster"),
        (BYTES, None, 1, "missing"),
        (BYTES, 1, None, "missing"),
    ],
)
def test_a_count_that_grows_is_worse(keys, first, second, verdict):
    """By whatever it grows if it is exact, and bytes by more than a hundredth."""
    assert {count_verdict(first, second, TABLE[key]) for key in keys} == {verdict}


@pytest.mark.parametrize(
    ("better", "verdicts", "words"),
    [
        (Better.LOWER, ("slower", "faster"), ("larger", "smaller")),
        (Better.HIGHER, ("faster", "slower"), ("larger", "smaller")),
        (Better.NEITHER, ("unsure", "unsure"), ("unsure", "unsure")),
    ],
)
def test_a_change_is_judged_and_said_by_which_way_is_better(better, verdicts, words):
    metric = replace(TABLE["operators"], better=better)
    found = count_verdict(10, 11, metric), count_verdict(10, 9, metric)
    assert found == verdicts
    assert tuple(verdict_label(verdict, metric) for verdict in found) == words


def test_rounds_join_to_the_largest_count_and_the_middle_of_what_varies():
    counts, varying = (*EXACT, *BYTES), ("setup_s", "warmup_s", "warmup_iterations")
    assert {combine_runs(key, (2.0, 2.0, 16.0)) for key in counts} == {16.0}
    assert {combine_runs(key, (2.0, 2.0, 16.0)) for key in varying} == {2.0}


def test_costs_have_estimates_in_columns_of_their_own():
    costs = [row for row in TABLE.values() if row.interval]
    assert {"time_s", "forward_s", "backward_s", "step_s", "energy_j"} <= {row.key for row in costs}
    assert TABLE["time_s"].estimate == (
        *("time_s", "time_lo_s", "time_hi_s", "time_log_se", "time_df"),
    )
    columns = [column for row in costs for column in row.estimate]
    assert len({*columns, *TABLE}) == 4 * len(costs) + len(TABLE)


def test_no_round_gives_no_number():
    assert math.isnan(combine_runs("setup_s", ()))
