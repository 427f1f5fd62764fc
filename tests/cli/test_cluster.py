"""What `sweep --on` asks of a cluster, and what it leaves when shards are lost."""

import pytest

from attnbench.cli import cluster
from attnbench.errors import CannotRun
from attnbench.fleet import drive, ray
from attnbench.workloads.requests import from_toml
from tests.cli.commands import here, refused
from tests.cli.test_shards import SMALL
from tests.fleet.test_drive import CANCELLED, DONE, LOST, RUNNING, Fake

ON_RAY = ("sweep", "--on", "ray", "--shards", "2")


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        (("--device", "cpu"), (0, 1)),
        (("--device", "cpu", "--threads", "3"), (0, 3)),
        (("--device", "cuda"), (1, 1)),
        (("--device", "cuda", "--threads", "3"), (1, 3)),
    ],
)
def test_a_shard_on_a_gpu_asks_for_no_more_cores_than_were_written(
    options, asked, tmp_path, monkeypatch
):
    seen = []

    def engine(*asked):
        seen.append(asked)
        raise CannotRun("no cluster answers")

    monkeypatch.setattr(ray, "Ray", engine)
    assert "no cluster answers" in refused(*ON_RAY, *options, "--out", tmp_path / "out")
    assert seen == [asked]


def told(tmp_path, monkeypatch, code, *stories):
    """What is printed of a sweep on a cluster with this story for each shard."""
    engine = Fake(tmp_path, {number: list(story) for number, story in enumerate(stories, 1)})
    monkeypatch.setattr(cluster, "engine_of", lambda *about: engine)
    monkeypatch.setattr(drive, "PAUSE_S", 0.0)
    return here(*SMALL, "--on", "slurm", "--shards", "2", "--out", tmp_path, code=code)


def test_what_was_measured_is_reported_before_a_lost_shard_is_named(tmp_path, monkeypatch):
    done = told(tmp_path, monkeypatch, 4, [RUNNING, DONE], [LOST])
    assert "Inference time" in done.stdout
    whole, shard = (from_toml(tmp_path / f"{of}.toml").items() for of in ("sweep", "shard"))
    assert dict(whole - shard) == {"on": "slurm", "shards": 2}
    assert shard < whole
    assert (tmp_path / "fig2.png").exists()
    said = "attnbench: shard 2/2 was given up after it was lost 3 times"
    assert said in done.stderr.splitlines()[-1]


def test_where_nothing_was_measured_only_the_lost_shards_are_named(tmp_path, monkeypatch):
    done = told(tmp_path, monkeypatch, 2, [CANCELLED], [CANCELLED])
    said = "attnbench: shard 1/2 (and 1 other) was cancelled; nothing was measured; attnbench sweep"
    assert said in done.stderr.splitlines()[-1]
