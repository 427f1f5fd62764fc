"""How a sweep is carried out: which options do not go together."""

from pathlib import Path

import pytest

from attnbench.commands.sweeping.carry_out import refuse_useless, sweep_with
from attnbench.commands.sweeping.invocation import Invocation
from attnbench.errors import UsageError
from attnbench.records import Shard
from attnbench.running.request.options import read
from tests.commands.commands import refused

SMALL = (
    *("sweep", "--models", "fastformer,linformer", "--lengths", "16,32", "--tokens", "64"),
    *("--width", "16", "--heads", "2", "--level", "attention", "--threads", "1", "--quick"),
    *("--rounds", "2", "--device", "cpu"),
)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--on", "slurm"), "--on slurm needs --shards"),
        (("--shards", "3"), "--shards needs --on or --dry-run"),
        (("--shard", "1/2", "--on", "slurm"), "give one"),
        (("--shard", "1/2", "--shards", "2"), "leave out --shards"),
        (("--shard", "1/2", "--slurm", "-t 1"), "--slurm needs --on slurm"),
        (
            ("--on", "slurm", "--shards", "2", "--device", "auto"),
            "--on needs a --device that the nodes have: cpu or cuda",
        ),
        (("--shard", "1/2", "--device", "cuda:1"), "the scheduler assigns each shard its device"),
        (("--shard", "0/2"), "--shard '0/2' is not I/N with I from 1 to N; write 2/6"),
        (("--shard", "3/2"), "--shard '3/2' is not I/N"),
        (("--shard", ""), "--shard '' is not I/N"),
    ],
)
def test_options_without_effect_are_refused(arguments, said, tmp_path):
    assert said in refused(*SMALL, "--out", tmp_path / "out", *arguments)
    assert not (tmp_path / "out").exists()


def refused_together(options, **how):
    """What is said of options of a new sweep, of which a part may be asked for."""
    shard = how.pop("shard", None)
    trace, dry_run = how.pop("trace", None), how.pop("dry_run", False)
    invocation = Invocation(options=read(options), shard=shard, folder=Path("x"), resumes=False)
    try:
        refuse_useless(invocation, trace, dry_run)
    except UsageError as error:
        return str(error)
    return ""


ON_CPUS = {"on": "slurm", "shards": 2, "device": "cpu"}


@pytest.mark.parametrize(
    ("options", "how", "said"),
    [
        ({}, {}, ""),
        (ON_CPUS, {}, ""),
        ({"shards": 2}, {"dry_run": True}, ""),
        ({"device": "cpu"}, {"shard": Shard(1, 2)}, ""),
        ({}, {"trace": "fnet/training/16"}, ""),
        ({"shards": 2}, {}, "--shards needs --on or --dry-run"),
        ({**ON_CPUS, "slurm": "-t 1"}, {}, ""),
        ({**ON_CPUS, "on": "ray", "slurm": "-t 1"}, {}, "--slurm needs --on slurm"),
        ({**ON_CPUS, "device": "cuda:1"}, {}, "the scheduler assigns each shard its device"),
        ({"on": "slurm", "shards": 2}, {}, "--on needs a --device that the nodes have"),
        ({}, {"trace": "fnet/training/16", "dry_run": True}, "--trace only profiles one case"),
        ({}, {"trace": "fnet/training/16", "shard": Shard(1, 2)}, "--trace only profiles one"),
        ({"cold": True}, {"trace": "fnet/training/16"}, "--trace only profiles one case"),
    ],
)
def test_where_and_what_is_measured_must_go_together(options, how, said):
    found = refused_together(options, **how)
    assert found.startswith(said)
    assert bool(found) == bool(said)


def test_a_sweep_that_goes_on_has_a_folder_already():
    with pytest.raises(UsageError, match="leave out --out"):
        sweep_with({}, resume="there", out=Path("elsewhere"))
