"""Sweeps on a real Ray of two nodes, and what is said without one."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from attnbench.commands.sweeping.cluster import folder as fleets
from attnbench.commands.sweeping.cluster.engine import JobState
from attnbench.commands.sweeping.cluster.ray import Ray, job_state
from attnbench.errors import CannotRun
from tests.commands.sweeping.cluster.cluster import free_ports, kill, processes_with, until
from tests.commands.sweeping.cluster.sweeps import LONG, ended, start, stored, whole

REQUIRED = "ATTNBENCH_TEST_RAY"  # set where Ray must be there
HELPER = Path(__file__).with_name("raylets.py")


@pytest.fixture
def ray():
    """The process that holds the nodes, and its address."""
    if find_spec("ray") is None:
        assert not os.environ.get(REQUIRED), "Ray is not installed"
        pytest.skip("Ray is not installed; nox -s fleet installs it")
    (port,) = free_ports(1)
    holder = subprocess.Popen(
        [sys.executable, str(HELPER), str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    address = next((line for line in holder.stdout if line.startswith("http://")), "").strip()
    assert address, "Ray did not start"
    yield holder, address
    holder.communicate()


@pytest.mark.long
def test_a_node_lost_in_the_middle_costs_only_what_it_had_not_stored(ray, tmp_path):
    holder, address = ray
    on_ray, env = ("--on", "ray"), {**os.environ, "RAY_ADDRESS": address}
    driver = start(tmp_path, *on_ray, "--shards", "2", *LONG, env=env)
    until(lambda: stored(tmp_path, 1) and stored(tmp_path, 2) > 1, "runs of both shards")
    first = fleets.read(tmp_path).jobs[2]
    holder.stdin.write(f"lose {first.id}\n")
    holder.stdin.flush()
    holder.stdout.readline()
    kill(processes_with(str(tmp_path / "shard-2")))  # as the end of a real host does
    kept = {(run.case, run.part, run.round) for run in fleets.stored(tmp_path, 2).runs}
    printed, _ = ended(driver)
    assert "Inference time" in printed
    origins = {
        (run.case, run.part, run.round): run.origin
        for run in whole(tmp_path, 2).runs
        if run.origin.shard.number == 2
    }
    assert {origins[key].attempt for key in kept} == {1}
    assert {origin.attempt for origin in origins.values()} == {1, 2}
    second = fleets.read(tmp_path).jobs[2]
    assert second.tries == 2


@pytest.mark.parametrize(
    ("status", "error_type", "means"),
    [
        ("PENDING", None, JobState.WAITING),
        ("RUNNING", None, JobState.RUNNING),
        ("STOPPED", None, JobState.CANCELLED),
        ("SUCCEEDED", None, JobState.ENDED),
        ("FAILED", "JOB_ENTRYPOINT_COMMAND_ERROR", JobState.ENDED),
        ("FAILED", "JOB_SUPERVISOR_ACTOR_DIED", JobState.ENDED),
        ("FAILED", None, JobState.ENDED),
        ("FAILED", "JOB_SUPERVISOR_ACTOR_START_TIMEOUT", JobState.UNSTARTED),
    ],
)
def test_states(status, error_type, means):
    name = SimpleNamespace(name=status)
    assert job_state(SimpleNamespace(status=name, error_type=error_type)) is means


def test_a_job_is_told_before_the_next_one_is_submitted(tmp_path):
    def submit_job(entrypoint, **how):
        if "job.sh 2" in entrypoint:
            raise RuntimeError("the connection was lost")
        return "raysubmit_1"

    engine = Ray.__new__(Ray)
    engine.gpus, engine.cpus = 0, 1
    engine.client = SimpleNamespace(submit_job=submit_job)
    told = engine.submit(tmp_path, (1, 2))
    assert next(told) == (1, "raysubmit_1")
    with pytest.raises(CannotRun, match="connection was lost"):
        next(told)


def test_without_ray_the_way_out_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setitem(sys.modules, "ray.job_submission", None)
    with pytest.raises(CannotRun, match=r"pip install 'attnbench\[ray\]'"):
        Ray()
