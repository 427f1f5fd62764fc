"""The command line on an emulated GPU runs to its end, and says what it could not do."""

import csv
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


def swept(attnbench, folder, *arguments, **settings):
    """The journal of a small sweep into the folder `s`, and the process."""
    done = attnbench("sweep", *SIZES, *arguments, "--out", "s", **settings)
    assert done.returncode == 0, done.stderr
    return load(folder / "s"), done


def timed(sweep):
    return [run for run in sweep.runs if run.part is Part.TIME]


def test_a_sweep_times_weighs_and_reports_both_modes(attnbench, tmp_path):
    sweep, done = swept(attnbench, tmp_path, "--models", "fastformer,transformer")
    assert {run.outcome for run in sweep.runs} == {Outcome.OK}, sweep.runs
    assert len(timed(sweep)) == 8
    assert sweep.request.device == "cuda", "auto takes the GPU"
    for run in timed(sweep):
        assert all(s.device_s and s.enqueue_s and s.unheld_wall_s for s in run.samples)
        assert run.values["sm_clock_hz"] == 1.98e9
        assert run.values["energy_j"] >= 0
        assert not {"throttle", "clock"} & run.notes.keys()
    weighed = [run for run in sweep.runs if run.part is Part.MEMORY]
    assert all(run.values["context_bytes"] == 500 << 20 for run in weighed)
    page = (tmp_path / "s" / "tables.md").read_text()
    assert "GPU settings: TF32 off; cuDNN TF32 off; float32 matmul precision highest." in page
    assert "launch-bound" not in page
    assert "driver 999.0" in done.stderr


def test_a_round_takes_a_process_for_each_series_and_memory_one_more(attnbench, tmp_path):
    file = tmp_path / "processes"
    settings = {"EMULATED_CUDA_PROCESSES": file}
    models = ("--models", "fastformer,transformer:eager", "--rounds", "2")
    sweep, _ = swept(attnbench, tmp_path, *models, **settings)
    assert sum(run.part is Part.MEMORY for run in sweep.runs) == 8
    of_peaks, series, rounds = 1, 2, 2
    assert len(file.read_text().split()) == of_peaks + series * (rounds + 1)


def test_cases_for_which_the_host_is_too_slow_are_marked(attnbench, tmp_path):
    models = ("--models", "transformer", "--mode", "inference")
    sweep, done = swept(attnbench, tmp_path, *models, EMULATED_CUDA_RATE=0.2)
    assert any(s.unheld_s for run in timed(sweep) for s in run.samples)
    assert "2 of 2 cases are launch-bound" in done.stderr
    assert "“l” marks launch-bound cases" in done.stdout
    with open(tmp_path / "s" / "cases.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        assert row["launch_bound"] == "True"
        assert float(row["device_s"]) == pytest.approx(float(row["time_s"]))
        assert float(row["device_s"]) < float(row["enqueue_s"])
        assert float(row["device_s"]) < float(row["wall_s"])


def test_cuda_graphs_are_captured_where_that_is_possible(attnbench, tmp_path):
    models = ("--models", "fastformer,adaptively_sparse", "--lengths", "32")
    sweep, _ = swept(attnbench, tmp_path, *models, "--cuda-graphs")
    outcomes = {run.case: run.outcome for run in timed(sweep)}
    names = {planned.case.key: planned.case.mechanism for planned in sweep.plan}
    assert {(names[key], outcome) for key, outcome in outcomes.items()} == {
        ("fastformer", "ok"),
        ("adaptively_sparse", "unsupported"),
    }
    assert sweep.request.settings.cuda_graphs
    page = (tmp_path / "s" / "tables.md").read_text()
    assert "CUDA graphs" in page
    assert "operation not permitted when stream is capturing" in page


def test_a_hidden_process_a_power_cap_and_a_low_clock_are_said(attnbench, tmp_path):
    models = ("--models", "transformer", "--mode", "inference", "--lengths", "32")
    sweep, done = swept(attnbench, tmp_path, *models, EMULATED_NVML="hidden,capped,slow")
    (run,) = timed(sweep)
    assert run.notes["throttle"] == "power cap"
    assert run.values["throttled_s"] > 0
    assert run.values["sm_clock_hz"] == 3.45e8
    (weighed,) = (run for run in sweep.runs if run.part is Part.MEMORY)
    assert "device_process_bytes" not in weighed.values
    assert weighed.values["device_used_bytes"] >= weighed.values["device_before_bytes"] > 0
    for text in ("throttled: power cap", "far below its maximum", "memory of single processes"):
        assert text in done.stderr


def test_the_second_card_and_a_part_of_a_card_are_measured(attnbench, tmp_path):
    settings = {"EMULATED_CUDA_DEVICES": 2, "EMULATED_NVML": "mig", "NVIDIA_TF32_OVERRIDE": 0}
    models = ("--models", "transformer", "--mode", "inference", "--lengths", "32")
    sweep, _ = swept(attnbench, tmp_path, *models, "--device", "cuda:1", **settings)
    assert {run.outcome for run in sweep.runs} == {Outcome.OK}
    (session,) = sweep.sessions
    assert "instance; clock" in session.notes["MIG"]
    assert session.notes["NVIDIA_TF32_OVERRIDE"] == "0"
    (run,) = timed(sweep)
    assert run.values["sm_clock_hz"] == 1.98e9, "that of the card"
    (weighed,) = (run for run in sweep.runs if run.part is Part.MEMORY)
    peak = weighed.values["device_process_bytes"]
    assert peak >= weighed.values["allocated_peak_bytes"] + weighed.values["context_bytes"]
    done = attnbench("doctor", "--device", "cuda:2", **settings)
    assert (done.returncode, "this machine has 2 CUDA devices" in done.stderr) == (2, True)


def test_a_card_that_allows_one_process_is_refused(attnbench):
    done = attnbench("doctor", "--device", "cuda", EMULATED_CUDA_MODE=3)
    assert done.returncode == 2
    assert "--device cuda: it allows one process only; nvidia-smi -c DEFAULT" in done.stderr


def test_doctor_describes_the_gpu(attnbench):
    done = attnbench("doctor", "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["device"], facts["cuda"], facts["driver"]) == ("Emulated GPU", "13.0", "999.0")
    assert facts["nvml"] == "answers, 1 devices"
    assert facts["notes"]["cuDNN TF32"] == "off"
    done = attnbench("doctor", EMULATED_NVML="mig")
    assert "TF32 off; MIG instance" in " ".join(done.stdout.split())


def test_a_check_counts_on_the_gpu(attnbench, tmp_path):
    models = ("--models", "fastformer", "--lengths", "16", "--mode", "inference")
    done = attnbench("check", "--save", "base.json", "--device", "cuda", *models)
    assert done.returncode == 0, done.stderr
    done = attnbench("check", "--baseline", "base.json", "--device", "cuda", *models, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["exit_code"] == 0


def test_graphs_need_a_gpu(attnbench):
    done = attnbench("sweep", "--device", "cpu", "--cuda-graphs", "--dry-run")
    assert (done.returncode, "--cuda-graphs needs a GPU" in done.stderr) == (2, True)
