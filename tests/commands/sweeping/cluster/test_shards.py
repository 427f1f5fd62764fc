"""A sweep in shards: measured by a person or on a cluster, merged, reported, and some lost."""

import re
import shutil

import pytest

from attnbench.records.storage.journal import FILE, load
from tests.commands.commands import here, refused

SMALL = (
    *("sweep", "--models", "fastformer,linformer", "--lengths", "16,32", "--tokens", "64"),
    *("--width", "16", "--heads", "2", "--level", "attention", "--threads", "1", "--quick"),
    *("--rounds", "2", "--device", "cpu"),
)


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """Two shards as two commands measured them, and what was printed."""
    top = tmp_path_factory.mktemp("shards")
    folders = [top / "shard-1", top / "shard-2"]
    return folders, [
        here(*SMALL, "--shard", f"{i}/2", "--out", folder) for i, folder in enumerate(folders, 1)
    ]


@pytest.mark.long
def test_a_shard_writes_its_journal_alone_and_no_budget_is_chosen(shards):
    folders, printed = shards
    for i, (folder, done) in enumerate(zip(folders, printed, strict=True), 1):
        assert [path.name for path in folder.iterdir()] == [FILE]
        assert done.stdout == ""
        assert f"shard {i}/2, attempt 1; the budget is per shard" in done.stderr
        assert "no budget" in done.stderr
        sweep = load(folder)
        assert sweep.request.budget_s is None
        assert {run.origin.host for run in sweep.runs} == {sweep.sessions[0].host} != {""}


def test_merged_shards_make_one_report(shards, tmp_path):
    out = tmp_path / "merged"
    done = here("merge", *shards[0], "--out", out)
    assert "2 of 2 shards, 24 runs, complete; attnbench report" in done.stderr
    here("report", out)
    assert "Divided into 2 shards." in (out / "tables.md").read_text()
    assert load(out).finished


def test_a_part_of_the_shards_is_said_to_be_one(shards, tmp_path):
    done = here("merge", shards[0][0], shards[0][0], "--out", tmp_path)
    assert re.search(r"incomplete: 1 of 2 shards, \d+ runs; missing 2/2;", done.stderr)
    assert "complete;" not in done.stderr
    first, *_ = here("report", tmp_path).stderr.splitlines()
    assert first.startswith("warning: incomplete: 1 of 2 shards; missing 2/2; attnbench merge")


@pytest.mark.long
def test_a_shard_goes_on_in_its_own_folder_alone(shards, tmp_path):
    copy = shutil.copytree(shards[0][0], tmp_path / "copy")
    lines = (copy / FILE).read_bytes().splitlines(keepends=True)
    (copy / FILE).write_bytes(b"".join(lines[:-3]))
    wrong = refused(*SMALL, "--shard", "2/2", "--resume", copy)
    assert "shard: 1/2 there, 2/2 here" in wrong
    done = here(*SMALL, "--shard", "1/2", "--resume", copy)
    assert "shard 1/2, attempt 2" in done.stderr
    sweep = load(copy)
    assert sweep.finished
    assert {run.origin.attempt for run in sweep.runs} == {1, 2}


def test_a_dry_run_says_how_long_shards_take():
    done = here(*SMALL, "--dry-run", "--shards", "3")
    assert "In 3 shards of whole blocks, the slowest is predicted" in done.stdout
    assert "#!/bin/sh" not in done.stdout


def test_a_dry_run_on_a_cluster_shows_the_script():
    done = here(*SMALL, "--dry-run", "--on", "slurm", "--shards", "2", "--out", "x")
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("exec ")]
    assert line.endswith('/x/shard.toml --shard "$number/2" "$how" "$out/shard-$number"')


def test_too_many_shards_are_refused_before_anything_is_written(tmp_path):
    said = refused(*SMALL, "--shard", "9/9", "--out", tmp_path / "out")
    assert "9 shards: the plan has only 4 blocks" in said
    assert not (tmp_path / "out").exists()
