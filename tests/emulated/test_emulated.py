"""The command line on an emulated GPU runs to its end, and says what it could not do."""

import json
import subprocess
import sys

import pytest

from attnbench.records import Outcome, Part
from attnbench.store.journal import load
from tests import emulated
from tests.cli.commands import environment

SIZES = ("--width", "32", "--heads", "2", "--lengths", "32,64", "--tokens", "128", "--quick")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    folder = tmp_path_factory.mktemp("libraries")
    emulated.environment(folder)
    return folder


@pytest.fixture
def attnbench(libraries, tmp_path):
    """Runs a command on emulated GPUs with these settings."""

    def run(*arguments, **settings):
        env = environment(**emulated.environment(libraries, **settings))
        return subprocess.run(
            [sys.executable, "-m", "attnbench", *arguments],
            env=env,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_a_sweep_times_weighs_and_reports_both_modes(attnbench, tmp_path):
    done = attnbench("sweep", *SIZES, "--models", "fastformer,transformer", "--out", "s")
    assert done.returncode == 0, done.stderr
    sweep = load(tmp_path / "s")
    assert {run.outcome for run in sweep.runs} == {Outcome.OK}, sweep.runs
    assert sweep.request.device == "cuda", "auto takes the GPU"
    timed = [run for run in sweep.runs if run.part is Part.TIME]
    assert len(timed) == 8
    assert all(sample.device_s for run in timed for sample in run.samples)
    weighed = [run for run in sweep.runs if run.part is Part.MEMORY]
    assert all(run.values["device_process_bytes"] > 500 << 20 for run in weighed)


def test_doctor_describes_the_gpu(attnbench):
    done = attnbench("doctor", "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["device"], facts["cuda"], facts["driver"]) == ("Emulated GPU", "13.0", "999.0")
    assert facts["nvml"] == "answers, 1 devices"


def test_a_check_counts_on_the_gpu(attnbench, tmp_path):
    models = ("--models", "fastformer", "--lengths", "16", "--mode", "inference")
    done = attnbench("check", "--save", "base.json", "--device", "cuda", *models)
    assert done.returncode == 0, done.stderr
    done = attnbench("check", "--baseline", "base.json", "--device", "cuda", *models, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["exit_code"] == 0
