"""How a sweep is carried out: which options do not go together."""

import shlex
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest

from attnbench.commands.sweeping import output
from attnbench.commands.sweeping.carry_out import folder_of, refuse_useless, sweep_with
from attnbench.commands.sweeping.invocation import Invocation
from attnbench.errors import CannotRun, StoreError, UsageError
from attnbench.records import Shard
from attnbench.running import plan as planner
from attnbench.running import session
from attnbench.running.plan import Plan
from attnbench.running.request.options import read
from attnbench.running.request.requests import to_toml
from tests.commands.commands import refused
from tests.records.storage.recorded import RECORDED

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
        (("--shard", "1/2", "--json"), "--json has no effect with --shard and --trace"),
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
        refuse_useless(invocation, trace, dry_run, as_json=False)
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


@pytest.mark.parametrize("name", ["sweep-kept.jsonl", "a copy.jsonl"])
def test_of_a_journal_elsewhere_the_way_to_a_folder_is_told_at_once(name, tmp_path):
    file = str(shutil.copy(RECORDED / "sweep.jsonl", tmp_path / name))
    said = refused("sweep", "--resume", file)
    commands = f"mkdir NEW && mv {shlex.quote(file)} NEW/sweep.jsonl"
    assert said.endswith(f": {commands} && attnbench sweep --resume NEW")
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_the_journal_of_a_folder_stands_for_it(tmp_path):
    file = Path(shutil.copy(RECORDED / "sweep.jsonl", tmp_path))
    assert folder_of(str(file)) == folder_of(str(tmp_path)) == tmp_path
    assert folder_of("missing") == Path("missing")
    (tmp_path / "sweep.toml").write_text("rounds = 3\n")
    with pytest.raises(StoreError, match=r"the first line of .* cannot be read"):
        folder_of(str(tmp_path / "sweep.toml"))


def test_options_of_a_resumption_are_not_stored_as_those_of_the_sweep(tmp_path, monkeypatch):
    files = []

    def measured(request, planned, server, folder, shard, file):
        files.append(file)
        raise CannotRun("enough")

    monkeypatch.setattr(session, "measuring_server", lambda *how: nullcontext())
    monkeypatch.setattr(planner, "plan", lambda request, server: Plan(cases=(), cards=()))
    monkeypatch.setattr(output, "measure_and_show", measured)
    options = read({"models": "fnet", "rounds": 4, "device": "cpu"})
    with pytest.raises(CannotRun, match="enough"):
        sweep_with(options, out=tmp_path / "new")
    shutil.copy(RECORDED / "sweep.jsonl", tmp_path)
    with pytest.raises(CannotRun, match="enough"):
        sweep_with(read({"rounds": 4}), resume=str(tmp_path))
    assert files == [to_toml(options), b""]
