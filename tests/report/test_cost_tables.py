"""Tables of what cases cost: times, peaks, speed-ups and digits."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas import DataFrame as Frame

from attnbench.analysis.report import analyse
from attnbench.analysis.summary import summary
from attnbench.records import Part
from attnbench.report import cost_tables
from attnbench.report.cost_tables import factor
from attnbench.report.grid import EMPTY, Cell
from attnbench.report.names import MARK
from attnbench.report.styles import SUSPECT
from tests.sweeps import altered, sweep


def texts(table):
    return [[cell.text for cell in row] for row in table.rows]


def test_speed_ups_name_the_baseline_and_leave_it_out():
    analysis = analyse(sweep())
    table = cost_tables.speedup(analysis.cases, "inference", analysis.baselines, analysis.speedups)
    assert table.title == "Speed-up over Transformer in inference"
    assert [row[0] for row in texts(table)] == ["fastformer:eager", "linformer:eager"]
    assert table.rows[0][-1].text == "–"


def test_ratios_of_times_that_were_not_taken_in_turns_are_marked():
    analysis = analyse(sweep())
    found = analysis.speedups

    def table(apart):
        speedups = found.assign(paired=~apart)
        return cost_tables.speedup(analysis.cases, "inference", analysis.baselines, speedups)

    assert not any(
        cell.endswith(" i") for row in texts(table(found["seq_len"] < 0)) for cell in row
    )
    marked = table(found["seq_len"] == 512)
    at = marked.columns.index("512")
    assert all(row[at].endswith("] i") for row in texts(marked))
    assert sum(cell.endswith(" i") for row in texts(marked) for cell in row) == len(marked.rows)
    assert marked.note.endswith("“i” marks ratios of times that were not taken in turns.")


def test_a_baseline_that_is_suspect_is_marked():
    analysis = analyse(sweep())
    about = (analysis.cases, "inference", analysis.baselines, analysis.speedups)
    table = cost_tables.speedup(*about, analysis.baselines)
    assert f"Transformer {SUSPECT}" in table.title
    assert MARK in table.note


@pytest.mark.parametrize(
    ("lengths", "said"),
    [
        ((128, 8192), ""),
        ((128, 16_384), "Where N > 8,192, times are scaled to 8,192 tokens."),
        ((128, 5_000), "Where N does not divide 8,192, times are scaled to 8,192 tokens."),
    ],
)
def test_times_of_fewer_or_more_tokens_than_a_batch_are_said_to_be_scaled(lengths, said):
    cases = summary(sweep(("fastformer", "linformer"), lengths=lengths))
    note = cost_tables.latency(cases, "inference", 8192).note
    assert ("scaled" in note) == bool(said)
    assert said in note


def test_a_form_that_changes_along_a_curve_is_named():
    def form(mechanism, workload):
        return "folded" if workload.seq_len > 256 else "eager"

    table = cost_tables.latency(summary(sweep(("fastformer",), form=form)), "training", 8192)
    assert table.rows[0][0].text == "fastformer"
    assert "Forms: Fastformer eager from 128, folded from 512." in table.note


def test_the_digits_of_each_form_are_shown():
    whole = sweep(("transformer:eager", "transformer:sdpa"), rounds=1)
    errors = {"eager": 1e-6, "sdpa": 0.0}
    forms = {planned.case.key: planned.case.form for planned in whole.plan}

    def with_error(run):
        return replace(run, values={"error": errors[forms[run.case]]})

    found = analyse(altered(whole, with_error, Part.MEMORY)).precision
    table = cost_tables.precision(found, "float32")
    assert [row[1:] for row in texts(table)] == [["eager", "6.0"], ["sdpa", "exact"]]
    assert [row[-1].value for row in table.rows] == [1e-6, 0.0]
    assert analyse(whole).precision.empty


def test_an_interval_that_says_nothing_is_left_out():
    assert factor(1.5, 1.25, 1.8) == "1.50× [1.25, 1.80]"
    assert factor(1.5, 1e-9, 1e9) == factor(1.5, float("nan"), 2.0) == "1.50×"


@pytest.mark.parametrize(
    ("tokens", "seq_len", "said"),
    [
        (8192, 128, "64 sequences of 128 tokens"),
        (8192, 8192, "1 sequence of 8,192 tokens"),
        (8192, 16_384, "1 sequence of 16,384 tokens, times scaled to 8,192 tokens"),
        (8192, 5_000, "1 sequence of 5,000 tokens, times scaled to 8,192 tokens"),
        (8192, 3_000, "2 sequences of 3,000 tokens, times scaled to 8,192 tokens"),
        (None, 128, "3 sequences of 128 tokens"),
    ],
)
def test_the_batch_of_a_time_is_said_at_each_length(tokens, seq_len, said):
    assert cost_tables.batch_at(Frame({"batch": [3, 3]}), tokens, seq_len) == said


def test_several_fixed_batches_have_a_letter_and_steps_too():
    assert cost_tables.batch(Frame({"batch": [3, 4]}), None) == "B sequences"
    assert cost_tables.per_step(Frame({"step": [1, 1]})) == "output token"
    assert cost_tables.per_step(Frame({"step": [4, 4]})) == "step of 4 tokens"
    assert cost_tables.per_step(Frame({"step": [1, 4]})) == "step of S tokens"


def test_the_clock_of_several_sweeps_is_not_named():
    one = Frame({"clock": ["CPU time"] * 2, "threads": [1, 1]})
    assert cost_tables.timed_by(one) == "CPU time on one core"
    assert cost_tables.timed_by(one.assign(threads=[1, 2])) == "time"
    assert cost_tables.timed_by(one.assign(clock="")) == "time"


@given(st.floats(0.01, 100), st.floats(1, 2), st.floats(1, 2))
def test_a_speed_up_below_one_is_written_as_how_much_slower(point, below, above):
    cell = cost_tables.speedup_cell(point, point / below, point * above)
    assert ("slower" in cell.text) == (point < 1)
    assert float(cell.text.partition("×")[0]) == pytest.approx(max(point, 1 / point), rel=0.01)
    assert cell[1:4] == (point, point / below, point * above)


def test_what_was_not_measured_says_why():
    def cell(row):
        return Cell("measured")

    row = {"time_s": math.nan, "outcome": "skipped", "cause": "budget", "reason": "no\ntime"}
    assert cost_tables.measured_or_why(row, "time_s", cell) == Cell("over budget", reason="no time")
    assert cost_tables.measured_or_why({**row, "time_s": 1.0}, "time_s", cell) == Cell("measured")
    assert cost_tables.measured_or_why({**row, "outcome": "ok"}, "time_s", cell) == EMPTY
    assert cost_tables.measured_or_why(None, "time_s", cell) == EMPTY
