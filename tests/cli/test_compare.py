"""`attnbench compare` as a user meets it, on stored sweeps; nothing is measured."""

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.commands import here, refused
from tests.store.recorded import rewrite

DATA = Path(__file__).parents[1] / "data" / "small"


def rewritten(folder, change):
    """A copy of the stored sweep with each entry's data changed."""
    return rewrite(shutil.copytree(DATA, folder), change)


def twice_the_work(kind, data):
    if kind == "case":
        data["core_flops"] = 2 * data["core_flops"] + data["projection_flops"]


def other_threads(kind, data):
    if kind == "session":
        data["environment"]["threads"] += 1


def test_a_sweep_against_itself_has_no_news_and_keeps_the_reservation(tmp_path):
    done = here("compare", DATA, DATA, "--html", tmp_path / "c.html")
    assert "Changes from the first sweep to the second\nnone" in done.stdout
    assert "FLOPs" in done.stdout
    text = (tmp_path / "c.html").read_text()
    assert "<p>None.</p>" in text
    assert "were not measured in turns" in text


def test_growth_is_reported_and_written_where_asked(tmp_path):
    grown = rewritten(tmp_path / "grown", twice_the_work)
    files = ["--markdown", tmp_path / "c.md", "--csv", tmp_path / "c.csv"]
    files += ["--html", tmp_path / "c.html"]
    done = here("compare", DATA, grown, *files)
    assert "larger" in done.stdout
    assert (tmp_path / "c.md").read_text().startswith("## Changes from")
    page = (tmp_path / "c.html").read_text()
    assert f"<h1>{grown} compared with {DATA}</h1>" in page
    assert "larger" in page
    assert (tmp_path / "c.csv").read_text().startswith("case,series,mode,seq_len,metric,first")


def test_times_of_another_machine_need_anyway(tmp_path):
    other = rewritten(tmp_path / "other", other_threads)
    done = here("compare", DATA, other, "--json")
    found = json.loads(done.stdout)
    assert found["refusals"][0].startswith("threads: ")
    assert "time_s" not in {row["metric"] for row in found["cases"]}
    assert "--anyway" in done.stderr
    found = json.loads(here("compare", DATA, other, "--json", "--anyway").stdout)
    assert "time_s" in {row["metric"] for row in found["cases"]}


def one_round(kind, data):
    if kind == "run":
        data["case"] = data["case"] if data["round"] == 0 else "gone"
    if kind == "session":
        data["environment"]["load"] = 9.5


def slower(kind, data):
    one_round(kind, data)
    if kind == "run":
        data["samples"] = [[n, *(6 * s if isinstance(s, float) else s for s in rest)]
                           for n, *rest in data["samples"]]  # fmt: skip
        data["elapsed_s"] *= 6


def test_one_round_calls_nothing_and_says_why(tmp_path):
    first = rewritten(tmp_path / "first", one_round)
    second = rewritten(tmp_path / "second", slower)
    found = json.loads(here("compare", first, second, "--json").stdout)
    times = [row for row in found["cases"] if row["metric"] == "time_s"]
    measured = [row for row in times if row["ratio"] is not None]
    assert measured
    assert all(row["ratio"] == pytest.approx(6) for row in measured)
    assert {row["verdict"] for row in measured} == {"unsure"}
    assert {row["low"] for row in measured} == {None}
    reason = "variation between processes was not measured in either sweep: one round only"
    assert {row["reason"] for row in measured} == {reason}
    assert {type(row["seq_len"]) for row in times} == {int}
    assert found["crossovers_moved"] == []
    for name in ("first", "second"):
        said = " ".join(found["warnings"][name])
        assert "one round only" in said
        assert "load 9.5" in said
    done = here("compare", first, second, "--markdown", tmp_path / "c.md")
    assert f"warning: {second}: one round only" in done.stderr
    page = (tmp_path / "c.md").read_text()
    assert page.startswith("- Warning of the first sweep: ")
    for text in (page, " ".join(done.stdout.split())):
        assert reason in text
        assert "not paired" in text


def test_rounds_on_one_side_are_not_enough(tmp_path):
    second = rewritten(tmp_path / "second", slower)
    found = json.loads(here("compare", DATA, second, "--json").stdout)
    reasons = {row["reason"] for row in found["cases"] if row["verdict"] == "unsure"}
    assert any("in the second sweep: one round only" in reason for reason in reasons)
    assert not {row["verdict"] for row in found["cases"]} & {"slower", "faster"}


def narrow(kind, data):
    if kind == "case":
        data["case"]["workload"] |= {"width": 64, "level": "attention", "shell": None}


def test_sweeps_without_a_common_case_get_one_sentence(tmp_path):
    other = rewritten(tmp_path / "other", narrow)
    said = refused("compare", DATA, other)
    assert "the two sweeps have no case in common (width 256 and 64," in said
    assert "level model and attention)" in said


def test_lengths_of_one_sided_rows_are_whole_numbers(tmp_path):
    def shorter(kind, data):
        if kind == "case" and data["case"]["workload"]["seq_len"] == 2048:
            data["case"]["workload"]["seq_len"] = 1024

    done = here("compare", DATA, rewritten(tmp_path / "other", shorter))
    assert "N = 2K" in done.stdout
    assert "N = 1K" in done.stdout
    assert "2048.0" not in done.stdout


def test_of_several_files_none_is_written_if_one_cannot_be(tmp_path):
    outputs = ("--html", tmp_path / "page.html", "--csv", tmp_path / "no" / "where.csv")
    assert "cannot write" in refused("compare", DATA, DATA, *outputs)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([DATA, "nowhere"], "no sweep in 'nowhere'"),
        ([DATA, DATA, "--against", "x"], "no mechanism 'x' in the sweep; known: "),
        ([DATA, DATA, "--csv", "/no/where"], "cannot write '/no/where'"),
        ([DATA, DATA, "--html", DATA / "sweep.jsonl"], "is the name of a sweep's journal"),
        ([DATA], "'SWEEP_B'"),
    ],
)
def test_bad_usage_is_reported(arguments, words):
    assert words in here("compare", *arguments, code=2).stderr
