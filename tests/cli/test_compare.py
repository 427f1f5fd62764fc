"""`attnbench compare` as a user meets it, on stored sweeps; nothing is measured."""

import json
import shutil
from pathlib import Path

import pytest

from attnbench.store import schema
from tests.cli.commands import here

DATA = Path(__file__).parents[1] / "data" / "schema1"


def rewritten(folder, change):
    """A copy of the stored sweep with each entry's data changed."""
    shutil.copytree(DATA, folder)
    file = folder / "sweep.jsonl"
    entries = [schema.unseal(line) for line in file.read_bytes().splitlines()]
    for entry in entries:
        change(entry.kind, entry.data)
    file.write_bytes(b"".join(map(schema.seal, entries)))
    return folder


def twice_the_work(kind, data):
    if kind == "case":
        data["core_flops"] = 2 * data["core_flops"] + data["projection_flops"]


def other_threads(kind, data):
    if kind == "session":
        data["environment"]["threads"] += 1


def test_a_sweep_against_itself_has_no_news():
    done = here("compare", DATA, DATA)
    assert done.returncode == 0, done.stderr
    assert "What changed in the second sweep against the first\nnone" in done.stdout
    assert "FLOPs" in done.stdout


def test_growth_is_told_and_written_where_asked(tmp_path):
    grown = rewritten(tmp_path / "grown", twice_the_work)
    files = ["--markdown", tmp_path / "c.md", "--csv", tmp_path / "c.csv"]
    done = here("compare", DATA, grown, *files)
    assert done.returncode == 0, done.stderr
    assert "larger" in done.stdout
    assert (tmp_path / "c.md").read_text().startswith("## What changed")
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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([DATA, "nowhere"], "no sweep in 'nowhere'"),
        ([DATA, DATA, "--against", "x"], "no mechanism 'x' in the sweep; there are: "),
        ([DATA, DATA, "--csv", "/no/where"], "cannot write '/no/where'"),
        ([DATA], "'second'"),
    ],
)
def test_bad_usage_is_told(arguments, words):
    done = here("compare", *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
