"""`report`, `compare` and `recommend` as a user meets them, on a stored sweep."""

import json
import math
import re
import shutil
from pathlib import Path
from unittest.mock import patch

import pandas as pd
import pytest

from attnbench.commands.console import plain
from tests.commands.commands import here, refused
from tests.records.storage.recorded import SMALL, rewrite

DATA = Path(__file__).parents[2] / "data" / "small"  # N = 512, 2,048 and 8,192


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
    found, answer, request = "Fastest in inference", "The answer in inference at N", "Request"
    for shown, order in ((page, [found, request, answer]), (text, [found, answer, request])):
        where = [shown.index(part) for part in order]
        assert where == sorted(where)
    found = json.loads(report(folder, "--json").stdout)
    assert list(found) == ["answers", "rows", "conclusions", "warnings", "cases"]
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


def test_figures_show_slopes_where_asked(folder: Path, tmp_path: Path):
    report(folder, "--formats", "svg", "--out", tmp_path / "usual")
    report(folder, "--formats", "svg", "--out", tmp_path / "guided", "--slopes")
    for name in ("fig2.svg", "memory.svg"):
        assert "∝ N²" not in (tmp_path / "usual" / name).read_text()
        assert "∝ N²" in (tmp_path / "guided" / name).read_text()


def test_one_length_has_no_slopes_to_show(tmp_path: Path):
    (tmp_path / "sweep.jsonl").write_bytes(SMALL)
    assert "--slopes: figures of one length have none" in report(tmp_path, "--slopes").stderr


def test_crossovers_against_a_mechanism_are_shown(folder: Path):
    done = report(folder, "--against", "fastformer")
    assert "Crossover lengths (time)" in done.stdout
    said = refused("report", folder, "--against", "fastfromer")
    assert "no mechanism 'fastfromer' in the sweep; known: " in said


def test_a_report_that_fails_says_that_all_runs_are_kept(folder, tmp_path):
    def fails(*arguments):
        raise KeyError("outcome")

    with patch("attnbench.report.page.conditions", fails):
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
    assert "the machine was busy: load 99.0" in page
    assert page.index('href="#warnings">1 warning</a>') < page.index("<img")


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


def narrow(kind, data):
    if kind == "case":
        data["case"]["workload"] |= {"width": 64, "level": "attention", "shell": None}


def other_threads(kind, data):
    if kind == "session":
        data["environment"] |= {"threads": 7, "load": 9.5}


def test_what_differs_between_the_machines_and_the_warnings_of_both_are_said(folder):
    other = rewrite(folder, other_threads)
    done = here("compare", DATA, other, "--json")
    found = json.loads(done.stdout)
    assert found["differs"][0].startswith("threads: ")
    assert "warning: the sweeps differ in threads: " in done.stderr
    assert f"warning: {other}: the machine was busy: load 9.5" in done.stderr
    assert "time_s" in {row["metric"] for row in found["cases"]}
    assert {one["question"] for one in found["conclusions"]} == {"change"}
    assert all(one["scope"]["lengths"] or one["missing"] for one in found["conclusions"])
    assert {type(row["seq_len"]) for row in found["cases"]} == {int}
    assert "\nnone\n" in here("compare", DATA, other).stdout


def test_sweeps_without_a_common_case_and_other_mistakes_get_one_sentence(folder):
    for arguments, words in (
        ([DATA, rewrite(folder, narrow)], "no case is in both sweeps"),
        ([DATA, "nowhere"], "no sweep in 'nowhere'"),
        ([DATA], "'SWEEP_B'"),
    ):
        assert words in here("compare", *arguments, code=2).stderr


def recommended(*arguments, code=0):
    return here("recommend", DATA, *arguments, code=code)


def test_each_mode_is_answered_in_a_sentence_above_one_table():
    done = recommended("--length", "512")
    first, second, _, title, *_ = done.stdout.splitlines()
    assert first.startswith("inference at 512: Fastformer; Transformer needs ")
    assert first.endswith("] the time.")
    assert second.startswith("training at 512: Fastformer; ")
    assert title == "Ranking at N = 512"


def test_what_ran_out_of_memory_or_would_is_said():
    done = recommended("--length", "8k")
    assert "training at 8,192: Fastformer alone, of those that may be ranked, was" in done.stdout
    assert "can't allocate memory" in done.stdout
    done = recommended("--length", "512", "--memory", "1MiB", code=1)
    assert "training at 512: nothing that may be ranked was timed." in done.stdout
    assert "MiB, over 1.000 MiB" in done.stdout
    assert "are of one case, not of a whole language model" in done.stdout


def test_a_ranking_in_json_has_the_numbers():
    found = json.loads(recommended("--length", "512", "--memory", "1GiB", "--json").stdout)
    rows, conclusions = found["cases"], found["conclusions"]
    questions = [one["question"] for one in conclusions]
    assert questions == ["fastest"] * 2 + ["fits"] * 4
    first = conclusions[0]
    assert (first["answer"], first["basis"], first["scope"]["lengths"]) == (
        "winner",
        "measured",
        [512],
    )
    assert {row["seq_len"] for row in rows} == {512}
    ranks = [(row["series"], row["rank"]) for row in rows if row["mode"] == "inference"]
    assert ranks == [("fastformer:eager", 1), ("transformer:eager", 2)]
    assert rows[1]["low"] > 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--length", "1k"), "the sweep has no length 1024; it has 512, 2048, 8192"),
        (("--length", "x"), "--length 'x' is not a whole number; write 512"),
        (("--length", "100m"), "--length '100m' is not between 1 and 16,777,216"),
        (("--length", "512", "--memory", "much"), "write 8GiB or 512MiB"),
    ],
)
def test_a_mistake_is_one_line_with_the_way_out(arguments, message):
    assert message in refused("recommend", DATA, *arguments)
