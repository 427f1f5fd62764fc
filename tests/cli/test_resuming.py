"""What `--resume` reads from a folder, and what may be written beside it."""

import json
from dataclasses import replace

import pytest

from attnbench.cli import resuming
from attnbench.cli.resuming import Earlier, continued, earlier
from attnbench.errors import DifferentSweep, UsageError
from attnbench.records import Shard
from attnbench.workloads.asked import texts
from attnbench.workloads.requests import request, written
from tests.cli.commands import here
from tests.store.recorded import CROSSED, NUMBERED, RECORDED


def asking(before, **given):
    """The request that goes on with a sweep, and these options beside `--resume`."""
    return continued(before, request(before.asked(texts(given))), given)


@pytest.mark.parametrize("folder", [RECORDED, NUMBERED, CROSSED], ids=lambda folder: folder.name)
def test_nothing_else_need_be_written(folder):
    before = earlier(folder)
    now = asking(before)
    limit = now.settings.memory_limit_bytes
    assert before.request is not None
    settings = replace(before.request.settings, memory_limit_bytes=limit)
    assert now == replace(before.request, settings=settings)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"width": 64}, "--width: 16,32 there, 64 here"),
        ({"case_timeout": "1h", "lengths": "16..33"}, "--lengths: 16,33 there, 16,32 here"),
        ({"quick": True, "cold": False, "causal": True}, "--causal: off there, on here"),
        ({"share_layers": False}, "--share-layers: the default there, off here"),
    ],
)
def test_what_differs_is_refused_as_it_was_written(given, said):
    with pytest.raises(DifferentSweep) as caught:
        asking(earlier(CROSSED), **given)
    assert f"({said}); leave these options out" in str(caught.value)


def test_what_is_the_same_in_other_words_is_not_refused():
    same = {"width": "32,16", "dtype": "bf16,fp32", "device": "cpu", "mode": "inference"}
    assert asking(earlier(CROSSED), **same).width == 16


def test_limits_may_be_new_and_change_nothing_else():
    before = earlier(CROSSED)
    now = asking(before, budget="none", rounds=7, case_timeout="2h")
    assert (now.budget_s, now.rounds, now.case_timeout_s) == (None, 7, 7200.0)
    assert now.settings.sample_s == before.request.settings.sample_s


def test_the_precision_stays_where_none_is_written_and_is_refused_in_too_few_rounds():
    stored = earlier(CROSSED)
    wanted = replace(stored.request, rounds=12, precision=0.05)
    before = replace(stored, request=wanted, options=written(wanted))
    assert asking(before).precision == asking(before, rounds=4).precision == 0.05
    assert asking(before, precision="1%").precision == 0.01
    few = asking(before, rounds=1)
    assert (few.rounds, few.precision) == (1, 0.05)
    with pytest.raises(UsageError, match="--precision has no effect in 1 round"):
        asking(before, rounds=1, precision="1%")


def test_a_shard_keeps_its_rounds():
    before = replace(earlier(CROSSED), shard=Shard(1, 2))
    with pytest.raises(DifferentSweep, match="--rounds: 1 there, 7 here"):
        asking(before, rounds=7)


def test_a_fleet_goes_on_with_its_file(tmp_path):
    (tmp_path / "fleet.json").write_text("{}")
    assert earlier(tmp_path) == Earlier(folder=tmp_path, options={})
    (tmp_path / "sweep.toml").write_text("on = 'slurm'\nshards = 3\n")
    assert earlier(tmp_path).options == {"on": "slurm", "shards": "3"}


def test_the_folder_is_named_once(tmp_path):
    assert resuming.chosen_folder("", tmp_path) == tmp_path
    assert resuming.chosen_folder(str(tmp_path), None) == tmp_path
    with pytest.raises(UsageError, match="leave out --out"):
        resuming.chosen_folder("a", tmp_path)


def test_a_recorded_sweep_is_planned_again_from_its_folder(tmp_path):
    done = here("sweep", "--resume", CROSSED, "--dry-run", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    labels = [row["label"] for row in json.loads(done.stdout)["cases"]]
    assert "fastformer:eager/B2-N16-D32-H2/model/inference/bfloat16/cpu" in labels
    assert len(labels) == 16
