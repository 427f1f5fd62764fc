"""`attnbench report` as a user meets it, on a stored sweep; nothing is measured."""

import json
import math
import shutil
from pathlib import Path
from unittest.mock import patch

import pandas as pd
import pytest

from attnbench.cli.console import plain
from tests.cli.commands import here, refused
from tests.store.recorded import rewrite

DATA = Path(__file__).parents[1] / "data" / "small"


def report(*arguments):
    return here("report", *arguments)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(DATA, tmp_path / "sweep")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_report_and_its_page_open_with_what_the_sweep_found(folder: Path):
    done = report(folder)
    lines = done.stdout.splitlines()
    assert lines[0] == "What the sweep found"
    assert lines[1].startswith("Fastest in inference: Fastformer at 512 to 2,048 (")
    assert "report.html" in done.stderr
    assert {"report.html", "tables.md", "fig2.png", "crossovers.csv"} <= names(folder)
    page, text = ((folder / name).read_text() for name in ("report.html", "tables.md"))
    assert page.startswith("<!DOCTYPE html>")
    assert "## What the sweep found" in text
    parts = ["Fastest in inference", "The answer at N"]
    for shown, order in ((page, ["Request", *parts]), (text, [*parts, "Request"])):
        where = [shown.index(part) for part in order]
        assert where == sorted(where)
    found = json.loads(report(folder, "--json").stdout)
    assert list(found) == ["answers", "rows", "warnings", "cases"]
    assert found["answers"]["fastest"][0]["first"] == "fastformer:eager"


def test_figures_have_a_size_for_print_in_every_format(folder: Path):
    report(folder, "--formats", "png,svg,pdf")
    points = b"396"  # 5.5 inches
    assert int.from_bytes((folder / "fig2.png").read_bytes()[16:20], "big") == 5.5 * 300
    assert (
        b'<svg xmlns:xlink="http://www.w3.org/1999/xlink" width="' + points + b"pt"
        in (folder / "fig2.svg").read_bytes()
    )
    assert b"/MediaBox [ 0 0 " + points + b" " in (folder / "fig2.pdf").read_bytes()


def test_crossovers_against_a_mechanism_are_shown(folder: Path):
    done = report(folder, "--against", "fastformer")
    assert "Crossover lengths (time)" in done.stdout
    said = refused("report", folder, "--against", "fastfromer")
    assert "no mechanism 'fastfromer' in the sweep; known: " in said


def test_a_report_that_fails_says_that_all_runs_are_kept(folder, tmp_path):
    def fails(*arguments):
        raise KeyError("outcome")

    with patch("attnbench.render.page.conditions", fails):
        done = here("report", folder, code=2, unexpected=True)
    assert done.stderr.splitlines()[-1] == (
        f"attnbench: unexpected KeyError: 'outcome'; all runs are kept in '{folder}';"
        f" attnbench report '{folder}' makes the report again"
    )
    assert names(folder) == {"sweep.jsonl"}


def test_bad_conditions_are_reported_on_the_terminal_and_on_the_page(folder: Path):
    def busy(kind, data):
        if kind == "session":
            data["environment"]["load"] = 99.0

    done = report(rewrite(folder, busy))
    assert "warning: the machine was busy: load 99.0" in done.stderr
    page = (folder / "report.html").read_text()
    assert page.index("the machine was busy: load 99.0") < page.index("<img")


@pytest.mark.parametrize("kept", [1, 2, 4, 16])
@pytest.mark.parametrize("verb", ["report", "claims", "compare"])
def test_a_journal_without_cases_or_runs_is_reported(folder: Path, verb: str, kept: int):
    file = folder / "sweep.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:kept]))
    words = (verb, *[folder] * (2 if verb == "compare" else 1))
    if kept == 16:  # the whole plan
        here(*words)
    else:
        assert "has no cases" in refused(*words)
        assert names(folder) == {"sweep.jsonl"}


def test_what_is_not_a_number_is_null_in_json():
    found = {"a": math.nan, "b": [1, math.inf], "c": pd.DataFrame({"x": [0.5, math.nan]})}
    assert plain(found) == {"a": None, "b": [1, None], "c": [{"x": 0.5}, {"x": None}]}
