"""`report` as a user meets it, on a stored sweep."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.commands.commands import here, refused

DATA = Path(__file__).parents[2] / "data" / "small"  # N = 512, 2,048 and 8,192


def report(*arguments):
    return here("report", *arguments)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(DATA, tmp_path / "sweep")


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """A folder with a report in every format, and what was printed."""
    folder = shutil.copytree(DATA, tmp_path_factory.mktemp("drawn") / "sweep")
    return folder, report(folder, "--formats", "png,svg,pdf")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_report_and_its_page_open_with_what_the_sweep_found(drawn):
    folder, done = drawn
    lines = done.stdout.splitlines()
    assert lines[0] == "What the sweep found"
    assert lines[1].startswith("Fastest in inference: Fastformer at 512 to 2,048 (")
    assert "report.html" in done.stderr
    assert {"report.html", "tables.md", "fig2.png", "crossovers.csv"} <= names(folder)
    page, text = ((folder / name).read_text() for name in ("report.html", "tables.md"))
    assert page.startswith("<!DOCTYPE html>")
    assert "## What the sweep found" in text
    found, answer, request = "Fastest in inference", "The answer in inference at N", "Request"
    for shown, order in ((page, [found, request, answer]), (text, [found, answer, request])):
        where = [shown.index(part) for part in order]
        assert where == sorted(where)


def test_a_report_in_json_has_the_answers(folder: Path):
    found = json.loads(report(folder, "--json").stdout)
    assert list(found) == ["answers", "rows", "conclusions", "warnings", "cases"]
    assert found["answers"]["fastest"][0]["first"] == "fastformer:eager"


def test_figures_have_a_size_for_print_in_every_format(drawn):
    folder, _ = drawn
    points = b"396"  # 5.5 inches
    assert int.from_bytes((folder / "fig2.png").read_bytes()[16:20], "big") == 5.5 * 300
    assert (
        b'<svg xmlns:xlink="http://www.w3.org/1999/xlink" width="' + points + b"pt"
        in (folder / "fig2.svg").read_bytes()
    )
    assert b"/MediaBox [ 0 0 " + points + b" " in (folder / "fig2.pdf").read_bytes()


@pytest.mark.long
def test_figures_and_tables_are_made_for_the_place_that_is_named(folder: Path):
    widths = {}
    for size, inches in {"column": 3.3, "text": 6.8, "slides": 10.0}.items():
        report(folder, "--size", size)
        picture = (folder / "fig2.png").read_bytes()
        assert int.from_bytes(picture[16:20], "big") == pytest.approx(300 * inches)
        found = re.search(r"% about (\d+) pt wide", (folder / "answer.tex").read_text())
        widths[size] = int(found[1])
    assert widths["column"] < 234 < widths["text"] < 486
    assert "--size 'big' is not column" in refused("report", folder, "--size", "big")


def test_figures_show_slopes_where_asked(drawn, tmp_path: Path):
    folder, _ = drawn
    report(folder, "--formats", "svg", "--out", tmp_path, "--slopes")
    for name in ("fig2.svg", "memory.svg"):
        assert "∝ N²" not in (folder / name).read_text()
        assert "∝ N²" in (tmp_path / name).read_text()


def test_crossovers_against_a_mechanism_are_shown(folder: Path):
    done = report(folder, "--against", "fastformer")
    assert "Crossover lengths (time)" in done.stdout
    said = refused("report", folder, "--against", "fastfromer")
    assert "no mechanism 'fastfromer' in the sweep; known: " in said


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
