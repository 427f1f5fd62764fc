"""What a sweep does on a cluster: its shards, their options, and what is said of lost ones."""

from contextlib import nullcontext
from dataclasses import replace

import pytest

from attnbench.commands.sweeping import on_cluster
from attnbench.commands.sweeping.cluster import drive, ray
from attnbench.commands.sweeping.cluster import folder as fleets
from attnbench.commands.sweeping.cluster.folder import Fleet, Job
from attnbench.commands.sweeping.invocation import Invocation
from attnbench.errors import CannotRun, DifferentSweep, SweepExists, UsageError
from attnbench.records import EngineKind, Shard
from attnbench.records.storage.journal import load
from attnbench.running import plan as planner
from attnbench.running import session
from attnbench.running.plan import Plan
from attnbench.running.request.options import read
from attnbench.running.request.requests import from_toml, to_toml
from tests.commands import commands
from tests.commands.commands import here, refused
from tests.commands.sweeping.cluster.shards import FACTS, measured
from tests.doubles.engine import CANCELLED, DONE, LOST, RUNNING, Engine
from tests.running.sessions import PLAN

SMALL = (
    *("sweep", "--models", "fastformer,linformer", "--lengths", "16,32", "--tokens", "64"),
    *("--width", "16", "--heads", "2", "--level", "attention", "--threads", "1", "--quick"),
    *("--rounds", "2", "--device", "cpu"),
)


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
    engine = Engine(tmp_path, {number: list(story) for number, story in enumerate(stories, 1)})
    monkeypatch.setattr(on_cluster, "engine_of", lambda *about: engine)
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


def asked(folder, resumes=False, **options):
    """What the command line asks of a sweep on a cluster."""
    return Invocation(options=read(options), shard=None, folder=folder, resumes=resumes)


def test_shards_get_the_options_that_say_nothing_of_the_cluster(tmp_path):
    given = read({"on": "slurm", "shards": 2, "slurm": "-t 1", "models": "fnet", "device": "cuda"})
    (tmp_path / "shard.toml").write_bytes(on_cluster.options_of_shards(given, "cuda"))
    assert from_toml(tmp_path / "shard.toml") == {"models": ("fnet",), "device": "cuda"}
    command = on_cluster.command(tmp_path)
    assert command[1:] == ["-m", "attnbench", "sweep", "--config", str(tmp_path / "shard.toml")]


def test_a_new_sweep_needs_the_number_of_its_shards_and_a_folder_of_its_own(tmp_path):
    found = on_cluster.fleet_of(asked(tmp_path, on="slurm", shards=3))
    assert (found.engine, found.shards, found.jobs) == ("slurm", 3, {})
    with pytest.raises(UsageError, match="--on slurm needs --shards, the number of parts"):
        on_cluster.fleet_of(asked(tmp_path, on="slurm"))
    fleets.prepare(tmp_path, found, ("true",))
    with pytest.raises(SweepExists):
        on_cluster.fleet_of(asked(tmp_path, on="slurm", shards=3))


def test_a_sweep_goes_on_with_its_own_engine_and_shards(tmp_path):
    begun = Fleet(engine=EngineKind.SLURM, shards=3, jobs={1: Job(id="5_1")})
    fleets.prepare(tmp_path, begun, ("true",))
    for options in ({"on": "slurm"}, {"on": "slurm", "shards": 3}):
        assert on_cluster.fleet_of(asked(tmp_path, resumes=True, **options)) == begun
    for options in ({"on": "ray"}, {"on": "slurm", "shards": 2}):
        with pytest.raises(DifferentSweep, match="has 3 shards on slurm: leave out --on and"):
            on_cluster.fleet_of(asked(tmp_path, resumes=True, **options))


def test_after_an_interruption_the_jobs_that_still_run_are_named(tmp_path):
    resumes = f"attnbench sweep --resume '{tmp_path}' continues"
    engine = Engine(tmp_path, {})
    assert on_cluster.still_running(tmp_path, engine) == "nothing was measured"
    fleets.prepare(tmp_path, Fleet(engine=EngineKind.SLURM, shards=2), ("true",))
    assert on_cluster.still_running(tmp_path, engine) == resumes
    jobs = {1: Job(id="5_1"), 2: Job(id="5_2")}
    fleets.prepare(tmp_path, Fleet(engine=EngineKind.SLURM, shards=2, jobs=jobs), ("true",))
    measured(tmp_path / "shard-1", Shard(1, 2))
    said = on_cluster.still_running(tmp_path, engine)
    assert said == f"jobs 5_2 keep running ({engine.ends} ends them); {resumes}"


def test_what_shards_have_measured_is_merged_and_counted(tmp_path, capsys):
    assert on_cluster.merged(tmp_path, 2) == ""
    measured(tmp_path / "shard-2", Shard(2, 2))
    runs = on_cluster.merged(tmp_path, 2)
    assert runs == f"{len(load(tmp_path).runs)} runs"
    assert f"1 shard merged in {tmp_path}: {runs} of " in capsys.readouterr().err


@pytest.fixture
def unread(monkeypatch):
    """No process reads cards: the plan is one that was made before."""
    monkeypatch.setattr(session, "measuring_server", lambda *how: nullcontext())
    monkeypatch.setattr(planner, "plan", lambda request, server: Plan(cases=PLAN, cards=FACTS))


def test_after_an_interruption_while_shards_are_merged_the_way_to_go_on_is_told(
    tmp_path, monkeypatch, unread
):
    def stopped(folder, count):
        raise KeyboardInterrupt

    monkeypatch.setattr(on_cluster, "merged", stopped)
    done = told(tmp_path, monkeypatch, 130, [RUNNING, DONE], [DONE])
    said = f"attnbench: interrupted; attnbench sweep --resume '{tmp_path}' continues"
    assert done.stderr.splitlines()[-1] == said


def test_after_an_interruption_before_shards_are_driven_again_their_jobs_are_named(
    tmp_path, monkeypatch, unread
):
    def stopped(request, server):
        raise KeyboardInterrupt

    told(tmp_path, monkeypatch, 2, [CANCELLED], [CANCELLED])
    fleet = Fleet(engine=EngineKind.SLURM, shards=2, jobs={1: Job(id="5_1"), 2: Job(id="5_2")})
    fleets.write(tmp_path, fleet)
    monkeypatch.setattr(planner, "plan", stopped)
    done = here("sweep", "--resume", tmp_path, code=130)
    said = f"jobs 5_1, 5_2 keep running (scancel ends them); attnbench sweep --resume '{tmp_path}'"
    assert done.stderr.splitlines()[-1] == f"attnbench: interrupted; {said} continues"


def test_a_fleet_goes_on_with_new_limits_and_as_no_other_sweep(tmp_path, monkeypatch, unread):
    told(tmp_path, monkeypatch, 2, [CANCELLED], [CANCELLED])
    before = {file.name: file.read_bytes() for file in tmp_path.glob("*.*")}
    said = refused("sweep", "--resume", tmp_path, "--lengths", "16,32,64")
    assert "as another sweep (lengths: 16,32 there, 16,32,64 here); repeat its options" in said
    assert {file.name: file.read_bytes() for file in tmp_path.glob("*.*")} == before
    here("sweep", "--resume", tmp_path, "--rounds", "5", code=2)
    here("sweep", "--resume", tmp_path, code=2)
    begun_with, now = (from_toml(tmp_path / f"{of}.toml") for of in ("sweep", "shard"))
    assert (begun_with["rounds"], now["rounds"]) == (2, 5)


@pytest.fixture
def planned(monkeypatch, unread):
    """Every request that is planned, and what else is to be done then."""

    class Planned(list):
        meanwhile = staticmethod(lambda: None)

    seen = Planned()

    def plan(request, server):
        seen.append(request)
        seen.meanwhile()
        return Plan(cases=PLAN, cards=FACTS)

    monkeypatch.setattr(planner, "plan", plan)
    return seen


def test_a_first_budget_that_was_stored_changes_no_samples(tmp_path, monkeypatch, planned):
    def sampling(device, quick, bounded):
        return {"sample_s": 0.01 if bounded else 0.02}

    monkeypatch.setattr(commands, "soon", sampling)
    sizes = {"models": "fnet", "lengths": "16,32", "tokens": 64, "width": 16, "heads": 2}
    options = read({"on": "slurm", "shards": 2, "device": "cpu", **sizes})
    fleets.write(tmp_path, Fleet(engine=EngineKind.SLURM, shards=2))
    (tmp_path / "sweep.toml").write_bytes(to_toml(options))
    for number in (1, 2):
        measured(tmp_path / f"shard-{number}", Shard(number, 2))
    here("sweep", "--resume", tmp_path, "--dry-run")
    (tmp_path / "shard.toml").write_bytes(to_toml({**options, "budget": 600.0}))
    here("sweep", "--resume", tmp_path, "--dry-run")
    first, then = planned
    assert (first.budget_s, then.budget_s) == (None, 600.0)
    assert first.settings.sample_s == then.settings.sample_s == 0.02


def test_jobs_of_a_driver_that_ended_only_just_are_found(tmp_path, monkeypatch, planned):
    told(tmp_path, monkeypatch, 2, [CANCELLED], [CANCELLED])
    engine = Engine(tmp_path, {1: [RUNNING, DONE], 2: [RUNNING, RUNNING, DONE]})
    monkeypatch.setattr(on_cluster, "engine_of", lambda *about: engine)
    jobs = {1: Job(id="5_1"), 2: Job(id="5_2")}

    def meanwhile():
        fleets.write(tmp_path, replace(fleets.read(tmp_path), jobs=jobs))

    planned.meanwhile = meanwhile
    here("sweep", "--resume", tmp_path)
    assert engine.submitted == []
    assert fleets.read(tmp_path).jobs == jobs


OWN = """\
# my sweep
models = "fastformer,linformer"
lengths = "16,32"
tokens = "64"
width = "16"
heads = 2
level = "attention"
quick = true
rounds = 2
device = "cpu"
"""


@pytest.mark.parametrize(
    ("own", "options", "stays"),
    [
        (OWN, (), True),
        (OWN + 'shards = 2\non = "slurm"\n', (), True),
        (OWN + "shards = 3\n", (), False),
        (OWN, ("--rounds", "3"), False),
    ],
)
def test_a_file_of_options_that_says_the_same_stays_as_it_was_written(
    own, options, stays, tmp_path, monkeypatch, unread
):
    file = tmp_path / "sweep.toml"
    file.write_text(own)
    engine = Engine(tmp_path, {1: [CANCELLED], 2: [CANCELLED]})
    monkeypatch.setattr(on_cluster, "engine_of", lambda *about: engine)
    cluster = ("--on", "slurm", "--shards", "2", *options)
    here("sweep", "--config", file, *cluster, "--out", tmp_path, code=2)
    assert (file.read_text() == own) is stays
    here("sweep", "--resume", tmp_path, code=2)


@pytest.mark.parametrize(
    ("failed", "lost"), [({}, ""), ({2: "was cancelled"}, "shard 2/2 was cancelled; ")]
)
def test_where_shards_are_of_two_sweeps_lost_ones_are_named_with_the_way_to_go_on(
    failed, lost, tmp_path, monkeypatch, unread
):
    def shards_end(folder, *how):
        measured(folder / "shard-1", Shard(1, 2))
        measured(folder / "shard-2", Shard(2, 2), torch="2.14")
        return failed

    monkeypatch.setattr(on_cluster, "run_shards", shards_end)
    said = told(tmp_path, monkeypatch, 2, [DONE], [DONE]).stderr.splitlines()[-1]
    assert said.startswith(f"attnbench: {lost}cannot merge ")
    assert said.endswith(
        "on one kind of machine, are one sweep; move one of the two folders away, and attnbench"
        f" sweep --resume '{tmp_path}' continues with that shard measured anew"
    )


def test_no_other_sweep_begins_where_a_fleet_has(tmp_path):
    fleets.write(tmp_path, Fleet(engine=EngineKind.SLURM, shards=4))
    for words in ((), ("--on", "slurm", "--shards", "4")):
        said = refused(*SMALL, *words, "--out", tmp_path)
        assert f"'{tmp_path}' already holds a sweep; --resume to continue it, --out for" in said
    assert [file.name for file in tmp_path.iterdir()] == [fleets.FILE]
