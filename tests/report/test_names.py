"""The names of series in text and tables."""

from dataclasses import replace

from attnbench.analysis.report import analyse
from attnbench.report.grid import Cell, Table, words
from attnbench.report.names import (
    MARK,
    baseline_label,
    full_names,
    row_series,
    suspects_last,
    with_labels,
)
from attnbench.report.page import report_tables
from tests.sweeps import sweep

QUIET = {"restart": 0.001, "noise": 0.001, "lengths": (128, 512, 2048)}


def test_series_are_named_as_in_figures_and_written_in_full_once():
    names = ("transformer:eager", "transformer:sdpa", "longformer")
    analysis = analyse(sweep(names, **QUIET))
    _, found, *times = with_labels([*report_tables(analysis)][:4], analysis.answers.series)
    rows = {row[0].text for row in found.rows}
    assert rows == {"Transformer (eager)", "Transformer (sdpa)", "Longformer"}
    assert found.note.endswith("In full: longformer:eager.")
    assert [bool(table.note) for table in times] == [False, True], "the same note is told once"


def test_suspect_series_are_marked_in_tables_with_a_note_and_stand_last():
    rows = tuple((words(name), Cell("1", 1)) for name in ("fnet:eager", "local:eager"))
    one = Table(name="t", title="T", columns=("Mechanism", "128"), rows=rows, note="A note.")
    other = replace(one, name="u", rows=rows[1:])
    found, unmarked = with_labels([one, other], ["fnet:eager", "local:eager"], {"fnet:eager"})
    assert [row[0].text for row in found.rows] == ["FNet †", "Local attention"]
    assert found.note == f"A note. {MARK}"
    assert unmarked.note == "A note."
    last = suspects_last(one, {"fnet:eager"})
    assert [row[0].text for row in last.rows] == ["local:eager", "fnet:eager"]
    assert suspects_last(one, set()) == one


def test_only_columns_of_series_are_renamed():
    one = Table(name="t", title="T", columns=("Than", "Note"), rows=((words("fnet"),) * 2,))
    (found,) = with_labels([one], ["fnet"])
    assert [cell.text for cell in found.rows[0]] == ["FNet", "fnet"]
    assert row_series(one, one.rows[0]) == ["fnet"]


def test_a_label_that_leaves_something_out_is_written_in_full():
    names = {"linformer:eager[rank=16]": "Linformer", "fnet": "FNet"}
    assert full_names(names) == "In full: linformer:eager[rank=16]."
    assert full_names({"linformer:eager[rank=16]": "Linformer (eager, rank=16)"}) == ""


def test_a_baseline_of_several_sizes_is_named_once():
    series = [f"{name}:eager D={width}" for name in ("fnet", "local") for width in (16, 32)]
    assert baseline_label(series, series[:2]) == "FNet"
    assert baseline_label(series, series[:1]) == "FNet D=16"
    assert baseline_label(series, [series[0], series[3]]) == "FNet or Local attention"
