"""The folder of a fleet: its state, the script of a job, and the kind of machine."""

import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.commands.sweeping.cluster import folder as fleets
from attnbench.commands.sweeping.cluster.folder import Fleet
from attnbench.errors import DifferentSweep, StoreError, SweepBusy, SweepExists
from attnbench.records import EngineKind
from attnbench.running.request.requests import to_toml
from tests.sweeps import environment

CLAIM = environment()
H100 = environment(device="NVIDIA H100")
ECHO = ("printf", "%s\\n")


@pytest.fixture
def fleet(tmp_path):
    """A prepared folder whose jobs print their arguments."""
    made = Fleet(engine=EngineKind.SLURM, shards=3)
    fleets.prepare(tmp_path, made, ECHO)
    return tmp_path


def run(folder, *arguments, **env):
    command = ["sh", str(folder / fleets.SCRIPT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False, cwd="/")
    return done.returncode, done.stdout.splitlines(), done.stderr


def test_where_a_sweep_began_here_or_on_a_cluster_no_other_one_does(tmp_path):
    fleets.refuse_begun(tmp_path)
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "sweep.jsonl").write_text("begun")
    fleets.write(tmp_path, Fleet(engine=EngineKind.SLURM, shards=3))
    for folder in (tmp_path, alone):
        with pytest.raises(SweepExists, match="--resume to continue it, --out for another folder"):
            fleets.refuse_begun(folder)


def test_options_are_those_that_a_fleet_began_with_under_the_limits_of_its_shards(tmp_path):
    fleets.write(tmp_path, Fleet(engine=EngineKind.SLURM, shards=3))
    (tmp_path / "sweep.toml").write_bytes(to_toml({"shards": 3, "rounds": 3}))
    assert fleets.asked(tmp_path) == {}
    assert fleets.options(tmp_path) == {"on": "slurm", "shards": 3, "rounds": 3}
    (tmp_path / fleets.OPTIONS).write_bytes(to_toml({"rounds": 4, "budget": 60.0}))
    assert fleets.asked(tmp_path) == {"rounds": 4, "budget_s": 60.0}
    assert fleets.options(tmp_path) == {"on": "slurm", "shards": 3, "rounds": 4, "budget": 60.0}
    assert fleets.options_begun_with(tmp_path) == {"on": "slurm", "shards": 3, "rounds": 3}


def test_of_the_options_of_shards_limits_alone_are_read(tmp_path):
    fleets.write(tmp_path, Fleet(engine=EngineKind.SLURM, shards=3))
    (tmp_path / "sweep.toml").write_bytes(to_toml({"lengths": (16, 32), "rounds": 3}))
    refused_once = {"lengths": (16, 64), "seed": 7, "rounds": 4, "budget": None}
    (tmp_path / fleets.OPTIONS).write_bytes(to_toml(refused_once))
    assert fleets.asked(tmp_path) == {"rounds": 4, "budget_s": None}
    now = {"on": "slurm", "lengths": (16, 32), "rounds": 4, "budget": None}
    assert fleets.options(tmp_path) == now


@pytest.mark.parametrize("content", [None, b"", b"{}", b'{"engine":"pbs","shards":1}'])
def test_a_state_that_cannot_be_read_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / fleets.FILE).write_bytes(content)
    with pytest.raises(StoreError, match="cannot read the fleet of"):
        fleets.read(tmp_path)


def test_a_job_measures_one_shard_and_a_later_try_resumes_it(fleet):
    own = ["--shard", "2/3", "--out", f"{fleet}/shard-2"]
    later = ["--shard", "2/3", "--resume", f"{fleet}/shard-2"]
    assert run(fleet, "2") == (0, own, "")
    assert run(fleet, SLURM_ARRAY_TASK_ID="2") == (0, own, "")
    assert run(fleet, "2", SLURM_ARRAY_TASK_ID="3") == (0, own, "")  # Ray within an array
    (fleet / "shard-2").mkdir()
    (fleet / "shard-2" / "sweep.jsonl").touch()
    assert run(fleet, "2") == (0, own, "")
    (fleet / "shard-2" / "sweep.jsonl").write_text("begun")
    assert run(fleet, "2") == (0, later, "")


@given(st.text(st.characters(exclude_characters="\0/", codec="utf-8"), min_size=1, max_size=20))
def test_names_and_options_reach_the_shard_as_they_are(tmp_path_factory, text):
    folder = tmp_path_factory.mktemp("odd") / f"x{text}"
    try:
        folder.mkdir()
    except OSError:
        return
    made = Fleet(engine=EngineKind.RAY, shards=2)
    fleets.prepare(folder, made, ("printf", "%s\\0", "--models", text))
    done = subprocess.run(["sh", folder / fleets.SCRIPT, "1"], capture_output=True, check=True)
    own = ["--shard", "1/2", "--out", f"{folder}/shard-1"]
    assert done.stdout.decode().split("\0")[:-1] == ["--models", text, *own]


def test_a_node_that_does_not_see_the_folder_measures_nothing(fleet):
    (fleet / fleets.FILE).unlink()
    code, out, err = run(fleet, "1")
    assert (code, out) == (2, [])
    assert f"attnbench: there is no {fleet} on " in err
    assert err.endswith(": choose a folder that all nodes share\n")


def test_the_first_shard_decides_the_kind_of_machine(fleet):
    fleets.claim(fleet, CLAIM)
    fleets.claim(fleet, CLAIM)
    with pytest.raises(DifferentSweep, match=r"\(device: cpu there, NVIDIA H100 here\): allocate"):
        fleets.claim(fleet, H100)
    assert {path.name for path in fleet.iterdir()} == {
        *(fleets.FILE, fleets.MACHINE, fleets.SCRIPT, fleets.LOGS)
    }


def test_of_many_shards_at_once_one_decides(fleet):
    def claimed(number):
        try:
            fleets.claim(fleet, (CLAIM, H100)[number % 2])
        except DifferentSweep:
            return None
        return number % 2

    with ThreadPoolExecutor(8) as pool:
        accepted = set(pool.map(claimed, range(32))) - {None}
    assert len(accepted) == 1


def test_one_process_at_a_time_drives_a_fleet(tmp_path):
    with (
        fleets.driven(tmp_path),
        pytest.raises(SweepBusy, match="another process drives"),
        fleets.driven(tmp_path),
    ):
        pass
    with fleets.driven(tmp_path):
        pass
