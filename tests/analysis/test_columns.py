"""The columns of cases: one list for CSV, JSON and Python, and in the manual with their meaning."""

import csv
import io
import json
from pathlib import Path

import pytest

import attnbench
from attnbench.analysis.columns import KEYS, explained
from attnbench.analysis.report import analyse
from attnbench.records.storage.journal import load
from attnbench.report import delimited
from tests.commands.commands import here

DATA = Path(__file__).parents[1] / "data"
MANUAL = Path("reports/MANUAL.md")
HEADING = "| Columns | What they have |"
COLUMNS = [name for columns in explained() for name in columns.names]


def stored() -> list[str]:
    """The rows of the manual's table of columns."""
    lines = MANUAL.read_text().splitlines()
    after = lines[lines.index(HEADING) + 2 :]
    return after[: after.index("")]


def test_columns_keep_the_names_and_meanings_that_the_manual_has():
    """Programs of users read these names: one may be added, none renamed or taken away."""
    assert stored() == [
        f"| {', '.join(f'`{name}`' for name in columns.names)} | {columns.meaning} |"
        for columns in explained()
    ]
    assert len({*COLUMNS}) == len(COLUMNS)


@pytest.mark.parametrize("name", ["small", "crossed", "options"])
def test_every_column_of_a_summary_is_reported_and_explained(name):
    found = analyse(load(DATA / name))
    assert {*found.cases} == {*COLUMNS, *KEYS}
    assert [*found.reported] == COLUMNS


def test_csv_json_and_python_have_the_same_columns(tmp_path):
    shown = json.loads(here("report", DATA / "small", "--json", "--out", tmp_path).stdout)
    with open(tmp_path / "cases.csv", newline="") as file:
        written, *_ = csv.reader(file)
    assert written == COLUMNS
    assert [*shown["cases"][0]] == COLUMNS
    assert [*attnbench.load(DATA / "small").cases] == COLUMNS


def test_empty_columns_are_written():
    text = delimited.frame(analyse(load(DATA / "small")).reported).decode()
    rows = [*csv.DictReader(io.StringIO(text))]
    assert {row["energy_j"] for row in rows} == {""}
