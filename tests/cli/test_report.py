"""`attnbench report` as a user meets it, on a stored sweep; nothing is measured."""

import shutil
from pathlib import Path

import pytest

from attnbench.store import schema
from tests.cli.commands import here

DATA = Path(__file__).parents[1] / "data" / "schema1"


def report(*arguments):
    return here("report", *arguments)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(DATA, tmp_path / "sweep")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_report_is_a_page_too(folder: Path):
    done = report(folder)
    assert done.returncode == 0, done.stderr
    assert {"report.html", "tables.md", "fig2.png", "predictions.csv"} <= names(folder)
    assert (folder / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert "report.html" in done.stderr


def test_slopes_change_the_figure_alone(folder: Path):
    assert report(folder).returncode == 0
    before = {name: (folder / name).read_bytes() for name in names(folder)}
    assert report(folder, "--slopes").returncode == 0
    changed = {name for name in names(folder) if (folder / name).read_bytes() != before[name]}
    assert changed == {"fig2.png", "report.html"}


def test_crossovers_against_a_mechanism_are_shown(folder: Path):
    done = report(folder, "--against", "fastformer")
    assert done.returncode == 0, done.stderr
    assert "The length from which one is faster" in done.stdout
    done = report(folder, "--against", "fastfromer")
    assert done.returncode == 2
    assert "no mechanism 'fastfromer' in the sweep; there are: " in done.stderr


def test_bad_conditions_are_told_on_the_terminal_and_on_the_page(folder: Path):
    file = folder / "sweep.jsonl"
    entries = [schema.unseal(line) for line in file.read_bytes().splitlines()]
    for entry in entries:
        if entry.kind == "session":
            entry.data["environment"]["load"] = 99.0
    file.write_bytes(b"".join(map(schema.seal, entries)))
    done = report(folder)
    assert "warning: the machine was busy: load 99.0" in done.stderr
    page = (folder / "report.html").read_text()
    assert page.index("the machine was busy: load 99.0") < page.index("<img")
