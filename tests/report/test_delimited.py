"""Tables as CSV: numbers in full, words beside them, and nothing that acts."""

import csv
import io
import math

import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.errors import clean
from attnbench.report import delimited
from attnbench.report.grid import Cell, Table, words


def test_csv_has_counts_in_full_and_no_rounding_of_other_numbers():
    numbers = (127.99999999999996, 1 / 3, 2.0**53 - 1, 0.00047180160000000003, -1.5)
    one = Table(name="t", title="T", columns=("x",), rows=tuple((Cell("", n),) for n in numbers))
    lines = delimited.table(one).decode().splitlines()
    assert lines[1:] == ["128.0", "0.333333333333", "9007199254740991.0", "0.0004718016", "-1.5"]


def rows_of(content):
    """The rows of a file, by the names of its columns."""
    return [*csv.DictReader(io.StringIO(content.decode(), newline=""))]


@given(st.text(st.sampled_from(" \t=+-@\uff1da1'"), max_size=6) | st.text(max_size=40))
def test_no_text_is_read_as_a_formula_and_none_is_lost(text):
    found = delimited.guarded(text)
    assert not found.lstrip().startswith(("=", "+", "-", "@", "\uff1d", "\uff0b"))
    assert found.removeprefix("'" if found != clean(text) else "") == clean(text)


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.booleans())
def test_a_number_keeps_its_value_to_twelve_digits(value):
    found = delimited.guarded(value)
    assert type(found) is type(value)
    assert found == pytest.approx(value, rel=1e-11, abs=0)


def test_a_table_across_lengths_has_a_row_for_each_series_and_length():
    rows = (
        (words("a"), Cell("1.2 ±0.1", 1.2, 1.1, 1.3), Cell("over budget", reason="it took long")),
        (words("b"), Cell("–"), Cell("3", 3.0)),
    )
    one = Table(
        name="t",
        title="T",
        columns=("Mechanism", "128", "1,024"),
        rows=rows,
        keys=("series",),
        across="time_ms",
    )
    found = rows_of(delimited.table(one))
    assert [(row["series"], row["seq_len"], row["time_ms"]) for row in found] == [
        *(("a", "128", "1.2"), ("a", "1024", ""), ("b", "128", ""), ("b", "1024", "3.0")),
    ]
    assert (found[0]["time_ms_low"], found[0]["time_ms_high"]) == ("1.1", "1.3")
    assert [row["time_ms_note"] for row in found] == ["", "over budget", "", ""]
    assert [row["time_ms_reason"] for row in found] == ["", "it took long", "", ""]


def test_a_last_column_says_of_which_series_a_number_is_suspect():
    rows = tuple((words(a), words(b), Cell("1", 1)) for a, b in (("a", "b"), ("b", "c")))
    one = Table(name="t", title="T", columns=("Faster", "Than", "Length"), rows=rows)
    found = rows_of(delimited.table(one, {"b": "it does no work", "c": "it sleeps"}))
    assert [row["suspect"] for row in found] == ["it does no work", "it does no work; it sleeps"]
    assert "suspect" not in rows_of(delimited.table(one))[0]


def test_a_whole_frame_has_empty_cells_where_it_knows_nothing():
    frame = pandas.DataFrame({"name": ["a", "=b"], "time_s": [0.5, math.nan], "n": [1, 2]})
    assert delimited.frame(frame) == b"name,time_s,n\na,0.5,1\n'=b,,2\n"
