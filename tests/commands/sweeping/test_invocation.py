"""What `--resume` asks for, and what it refuses."""

from dataclasses import replace
from pathlib import Path

import pytest

from attnbench.commands.sweeping.cluster import folder as fleets
from attnbench.commands.sweeping.cluster.folder import Fleet
from attnbench.commands.sweeping.invocation import Invocation, request_of
from attnbench.devices.finding import find
from attnbench.errors import DifferentSweep
from attnbench.records import EngineKind, Shard
from attnbench.records.storage.journal import FILE, Journal, load
from attnbench.records.storage.schema import Start
from attnbench.running.request.options import read
from attnbench.running.request.requests import request
from tests.commands.commands import here
from tests.records.storage.recorded import CROSSED, OPTIONS, SWEEP


def asking(before, **given):
    """The request that goes on with a sweep, and these options beside `--resume`."""
    asked = Invocation(options=read(given), shard=before.shard, folder=Path(), resumes=True)
    return request_of(asked, before)


@pytest.fixture(autouse=True)
def memory(monkeypatch):
    """The machine always has as much memory left."""
    cpu = type(find("cpu"))
    usual = cpu.sampling
    free = {"memory_limit_bytes": 1 << 33}
    monkeypatch.setattr(cpu, "sampling", lambda *how, **ever: usual(*how, **ever) | free)


@pytest.fixture
def before(tmp_path):
    """A sweep to go on with, in a journal that says how it was asked for."""
    sizes = {"width": "16,32", "heads": 2, "lengths": "128..512", "dtype": "fp32,bf16"}
    more = {"models": "fastformer,fnet", "rounds": 6, "mode": "inference"}
    wanted = request(read({**sizes, **more}))
    with Journal(tmp_path, Start(wanted, SWEEP.sessions[0])):
        pass
    return load(tmp_path)


def test_a_recorded_sweep_goes_on_with_its_options_in_any_words():
    sweep = load(OPTIONS)
    settings = replace(sweep.request.settings, memory_limit_bytes=1 << 33)
    same = {"lengths": "16..32", "dtype": "fp32", "tokens": 64}
    assert asking(sweep, **same) == replace(sweep.request, settings=settings)
    with pytest.raises(DifferentSweep, match="tokens: 64 there, 8192 here"):
        asking(sweep, tokens="8k")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"width": 64}, "width: 16 there, 64 here; variants: "),
        ({"case_timeout": "1h", "lengths": "16..33"}, "lengths: 128,256,512 there, 16,32 here"),
        ({"quick": True, "cold": False}, "quick: False there, True here"),
    ],
)
def test_what_differs_is_refused(before, given, said):
    with pytest.raises(DifferentSweep, match=rf"\({said}"):
        asking(before, **given)


def test_limits_may_be_new_and_change_nothing_else(before):
    assert asking(before) == asking(before, shards=4) == before.request
    same = {"width": "16,32", "dtype": "fp32,bf16", "device": "auto", "lengths": "128,256,512"}
    assert asking(before, **same) == before.request
    now = asking(before, budget="none", rounds=7, case_timeout="2h")
    assert (now.budget_s, now.rounds, now.case_timeout_s) == (None, 7, 7200.0)
    assert now.settings.sample_s == before.request.settings.sample_s
    assert asking(before).precision == asking(before, rounds=1).precision == 0.02
    assert asking(before, precision="1%").precision == 0.01


def test_a_recorded_sweep_is_planned_again_from_its_folder(tmp_path):
    done = here("sweep", "--resume", CROSSED, "--dry-run", cwd=tmp_path)
    assert "16 of 16 cases" in done.stdout
    assert "fastformer:eager D=32 bf16" in done.stdout


def going_on(folder, before, **given):
    """The request of a fleet of two shards that goes on with these options beside its first."""
    fleets.write(folder, Fleet(engine=EngineKind.SLURM, shards=2))
    before = read({"on": "slurm", "device": "cpu", **before})
    options = {**before, **read(given)}
    asked = Invocation(options=options, shard=None, folder=folder, resumes=True, before=before)
    return request_of(asked, None)


SIZES = {"models": "fnet", "lengths": "16..64:x2", "tokens": 64, "width": 16, "heads": 2}


def test_a_fleet_goes_on_with_its_options_in_any_words_and_new_limits(tmp_path):
    first = going_on(tmp_path, SIZES)
    assert going_on(tmp_path, SIZES, lengths="16,32,64", tokens="64", device="cpu") == first
    assert going_on(tmp_path, SIZES, rounds=9) == replace(first, rounds=9)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"lengths": "16..128:x2"}, "lengths: 16,32,64 there, 16,32,64,128 here"),
        ({"models": "fnet,linformer"}, "models: fnet there, fnet,linformer here"),
        ({"device": "cuda"}, "device: cpu there, cuda here"),
    ],
)
def test_a_fleet_goes_on_as_no_other_sweep(given, said, tmp_path):
    with pytest.raises(DifferentSweep, match=said) as refused:
        going_on(tmp_path, SIZES, **given)
    assert str(refused.value).startswith(f"cannot resume '{tmp_path}' as another sweep (")


def test_a_first_budget_is_refused_until_all_shards_have_begun_with_their_samples(tmp_path):
    first = going_on(tmp_path, SIZES)
    with pytest.raises(DifferentSweep, match=r"sample_s: 3\.0 there, 0\.5 here"):
        going_on(tmp_path, SIZES, budget="10m")
    for number in (1, 2):
        start = Start(first, SWEEP.sessions[0], Shard(number, 2))
        with Journal(fleets.shard_folder(tmp_path, number), start):
            pass
    assert going_on(tmp_path, SIZES, budget="10m") == replace(first, budget_s=600.0)


def test_whether_shards_have_begun_is_asked_of_no_journal_line(tmp_path):
    first = going_on(tmp_path, SIZES)
    for number in (1, 2):
        folder = fleets.shard_folder(tmp_path, number)
        folder.mkdir()
        (folder / FILE).write_bytes(b"damaged")
    assert going_on(tmp_path, SIZES, budget="10m") == replace(first, budget_s=600.0)
