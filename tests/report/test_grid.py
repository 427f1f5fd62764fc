"""The cells and columns that every writer takes."""

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.records import units
from attnbench.records.metrics import Unit
from attnbench.report.grid import (
    EMPTY,
    LONGEST,
    Cell,
    Column,
    Table,
    bounded,
    cut,
    number,
    quantity,
    snake_case,
    table,
    words,
)


def test_every_unit_can_be_printed():
    texts = [quantity(1500.0, unit) for unit in Unit]
    assert len(set(texts)) == len(Unit)
    assert {"1,500 J", "1,500 W", "1.465 KiB", "25.0 min"} <= set(texts)


@pytest.mark.parametrize(
    ("heading", "key"),
    [
        ("Core, GFLOP/s", "core_gflop_s"),
        ("Time exponent, training", "time_exponent_training"),
        ("Größe", "gro_e"),
        ("±", "value"),
        ("vs Transformer", "vs_transformer"),
    ],
)
def test_a_heading_names_a_column_of_a_file(heading, key):
    assert snake_case(heading) == key


@given(st.text())
def test_every_heading_gives_a_key_of_small_letters_and_figures(heading):
    assert re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+)*", snake_case(heading))


def test_a_long_text_is_cut_at_its_end_and_a_short_one_stays():
    assert cut("x" * LONGEST) == "x" * LONGEST
    assert cut("x" * LONGEST + "yz") == "x" * LONGEST + " …"
    assert cut("x" * (LONGEST - 1) + " yz") == "x" * (LONGEST - 1) + " …", "no space before that"


def test_columns_say_what_each_row_shows_and_what_files_call_it():
    made = table(
        [{"series": "a", "flops": 2_000_000.0}, {"series": "b\x1b[31m", "flops": math.nan}],
        [
            Column.words("Mechanism", "series"),
            Column.number("FLOPs per token", "flops", units.flops),
            Column("Twice, as text", lambda row: words(2 * row["series"])),
        ],
        name="t",
        title="T",
    )
    assert made.columns == ("Mechanism", "FLOPs per token", "Twice, as text")
    assert made.keys == ("series", "flops", "twice_as_text")
    assert [row[1].value for row in made.rows] == [2_000_000.0, None]
    assert [row[1].text for row in made.rows] == [units.flops(2_000_000.0), "–"]
    assert "\x1b" not in made.rows[1][0].text
    assert made.numeric == [False, True, False]


def test_columns_of_lengths_stand_to_the_right_even_where_nothing_ran():
    rows = ((words("a"), Cell("over budget"), Cell("1", 1)),)
    one = Table(name="t", title="T", columns=("Mechanism", "128", "256"), rows=rows)
    assert one.aligned == one.numeric == [False, False, True]
    assert replace(one, across="time_ms").aligned == [False, True, True]


def test_truth_is_no_number():
    assert Cell("1", 1).is_number
    assert not any(cell.is_number for cell in (Cell("yes", True), Cell("1", "1"), EMPTY))


def test_an_estimate_has_its_bounds_and_no_number_is_nan():
    assert bounded(1.2, 1.1, 1.3) == Cell("1.20 ±0.10", 1.2, 1.1, 1.3)
    assert bounded(math.nan, math.nan, math.nan)[1:4] == (None, None, None)
    assert number(math.nan) == EMPTY
