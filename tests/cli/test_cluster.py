"""What `sweep --on` asks of a cluster, and what it leaves when shards are lost."""

import pytest

from attnbench.cli import cluster
from attnbench.errors import CannotRun
from attnbench.run.cgroups import cores
from tests.cli.commands import here

ON_RAY = ("sweep", "--on", "ray", "--shards", "2")


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        (("--device", "cpu"), (0, cores())),
        (("--device", "cpu", "--threads", "3"), (0, 3)),
        (("--device", "cuda"), (1, 1)),
        (("--device", "cuda", "--threads", "3"), (1, 3)),
    ],
)
def test_a_shard_on_a_gpu_asks_for_no_more_cores_than_were_written(
    options, asked, tmp_path, monkeypatch
):
    seen = []

    def engine(kind, slurm, address, gpus, cpus):
        seen.append((gpus, cpus))
        raise CannotRun("no cluster answers")

    monkeypatch.setattr(cluster, "engine", engine)
    done = here(*ON_RAY, *options, "--out", tmp_path / "out")
    assert "no cluster answers" in done.stderr
    assert seen == [asked]
