"""`compare` as a user meets it, on stored sweeps."""

import json
import shutil
from pathlib import Path

import pytest

from tests.commands.commands import here
from tests.records.storage.recorded import rewrite

DATA = Path(__file__).parents[2] / "data" / "small"  # N = 512, 2,048 and 8,192


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(DATA, tmp_path / "sweep")


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
