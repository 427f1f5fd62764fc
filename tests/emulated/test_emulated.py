"""The command line on an emulated GPU runs to its end, and says what it could not do.

Three sweeps: a usual one, one where the host is slow and the card ails, and one on a second card.
"""

import csv
import json
import re
from types import SimpleNamespace

import pytest

from attnbench.records import Outcome, Part
from attnbench.records.storage.journal import load
from tests import emulated
from tests.driven import Driven

SIZES = ("--width", "32", "--heads", "2", "--tokens", "128", "--quick")


@pytest.fixture(scope="module")
def attnbench(tmp_path_factory):
    """Runs a command on emulated GPUs with these settings, in a folder of the module."""
    libraries = tmp_path_factory.mktemp("libraries")
    driven = Driven(tmp_path_factory.mktemp("emulated"), **emulated.environment(libraries))
    yield driven
    driven.close()


def swept(attnbench, name, *arguments, **settings):
    """A small sweep: its journal, the runs of time and of memory, its page and errors."""
    done = attnbench.run("sweep", *SIZES, *arguments, "--out", name, **settings)
    assert done.returncode == 0, done.stderr
    folder = attnbench.folder / name
    sweep = load(folder)
    parts = {part: [run for run in sweep.runs if run.part is part] for part in Part}
    return SimpleNamespace(
        folder=folder,
        sweep=sweep,
        timed=parts[Part.TIME],
        weighed=parts[Part.MEMORY],
        page=(folder / "tables.md").read_text(),
        out=done.stdout,
        err=done.stderr,
    )


@pytest.fixture(scope="module")
def usual(attnbench):
    """Two series, lengths, modes and rounds on a slow GPU; its processes are counted."""
    models = ("--models", "fastformer,transformer:eager", "--lengths", "32,64", "--rounds", "2")
    file = attnbench.folder / "processes"
    settings = {"EMULATED_CUDA_PROCESSES": file, "EMULATED_CUDA_RATE": 4}
    found = swept(attnbench, "usual", *models, **settings)
    found.processes = len(file.read_text().split())
    return found


@pytest.fixture(scope="module")
def ailing(attnbench):
    """The host enqueues for longer than the card works, whose NVML reports trouble."""
    models = ("--models", "transformer", "--mode", "inference", "--lengths", "32,64")
    settings = {"EMULATED_CUDA_RATE": 0.05, "EMULATED_NVML": "hidden,capped"}
    settings |= {"EMULATED_CUDA_MHZ": 345, "EMULATED_CUDA_QUEUE": 50}
    return swept(attnbench, "ailing", *models, **settings)


SECOND = {"EMULATED_CUDA_DEVICES": 2, "EMULATED_NVML": "mig", "NVIDIA_TF32_OVERRIDE": 0}


@pytest.fixture(scope="module")
def second(attnbench):
    """CUDA graphs on a part of the second card."""
    models = ("--models", "fastformer,adaptively_sparse", "--lengths", "32")
    # predictions by the rates of an emulated card may be wild
    how = ("--cuda-graphs", "--device", "cuda:1", "--case-timeout", "9999h")
    return swept(attnbench, "second", *models, *how, **SECOND)


@pytest.mark.long
def test_a_sweep_times_weighs_and_reports_both_modes(usual):
    assert {run.outcome for run in usual.sweep.runs} == {Outcome.OK}, usual.sweep.runs
    assert (len(usual.timed), len(usual.weighed)) == (16, 8)
    assert usual.sweep.request.device == "cuda", "auto takes the GPU"
    for run in usual.timed:
        assert all(s.device_s and s.enqueue_s and s.unheld_wall_s for s in run.samples)
        assert run.values["sm_clock_hz"] == pytest.approx(1.98e9, rel=0.05)
        assert "energy_j" not in run.values
        assert "throttle" not in run.notes
    assert all(run.values["context_bytes"] == 500 << 20 for run in usual.weighed)
    for setting in ("TF32 off", "cuDNN TF32 off", "float32 matmul precision highest", "ECC on"):
        assert setting in re.search("GPU settings: (.*)", usual.page)[1].rstrip(".").split("; ")
    assert "8 of 8 cases are launch-bound" not in usual.page  # some may be, on a busy machine
    assert "driver 999.0" in usual.page


@pytest.mark.long
def test_a_round_takes_a_process_for_each_series_and_memory_one_for_each_case(usual):
    # of two rounds each begins twice: the first block is repeated before the others are visited
    of_peaks, series, begun = 1, 2, 2 + 2
    assert usual.processes == of_peaks + series * begun + len(usual.weighed)


@pytest.mark.long
def test_cases_for_which_the_host_is_too_slow_are_marked(ailing):
    assert any(s.unheld_s for run in ailing.timed for s in run.samples)
    assert "2 of 2 cases are launch-bound" in ailing.err
    assert "“l” marks cases whose launches" in ailing.out
    with open(ailing.folder / "cases.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2
    for row in rows:
        assert row["launch_bound"] == "True"
        assert float(row["device_s"]) == pytest.approx(float(row["time_s"]))
        assert float(row["device_s"]) < float(row["enqueue_s"])
        assert float(row["device_s"]) < float(row["wall_s"])


@pytest.mark.long
def test_a_hidden_process_a_power_cap_and_a_low_clock_are_said(ailing):
    for run in ailing.timed:
        assert run.notes["throttle"] == "power cap"
        assert run.values["throttled_s"] > 0
        assert run.values["sm_clock_hz"] == pytest.approx(3.45e8, rel=0.05)
    for run in ailing.weighed:
        assert "device_process_bytes" not in run.values
    for text in ("throttled: power cap", "far below its maximum"):
        assert text in ailing.err
    assert "memory of single processes" in ailing.page


@pytest.mark.long
def test_cuda_graphs_are_captured_where_that_is_possible(second):
    names = {planned.case.key: planned.case.mechanism for planned in second.sweep.plan}
    assert {(names[run.case], run.outcome) for run in second.timed} == {
        ("fastformer", "ok"),
        ("adaptively_sparse", "unsupported"),
    }
    assert second.sweep.request.settings.cuda_graphs
    assert "CUDA graphs" in second.page
    outcomes = (second.folder / "cases.csv").read_text()
    assert "operation not permitted when stream is capturing" in outcomes


@pytest.mark.long
def test_the_second_card_and_a_part_of_a_card_are_measured(second):
    (session,) = second.sweep.sessions
    assert "instance; clock" in session.notes["MIG"]
    assert session.notes["NVIDIA_TF32_OVERRIDE"] == "0"
    timed = [run for run in second.timed if run.outcome is Outcome.OK]
    weighed = [run.values for run in second.weighed if run.outcome is Outcome.OK]
    assert len(timed) == len(weighed) == 2
    for values in weighed:
        least = values["allocated_peak_bytes"] + values["context_bytes"]
        assert values["device_process_bytes"] >= least


@pytest.mark.long
def test_doctor_describes_the_gpu(attnbench):
    done = attnbench.run("doctor", "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["device"], facts["cuda"], facts["driver"]) == ("Emulated GPU", "13.0", "999.0")
    assert facts["nvml"] == "answers, 1 device"
    assert facts["notes"]["cuDNN TF32"] == "off"
    assert (facts["notes"]["power limit"], facts["notes"]["ECC"]) == ("700 W", "on")
    assert "other processes" not in facts["notes"]
    done = attnbench.run("doctor", EMULATED_NVML="shared")
    assert "other processes use the GPU (busy 31 % of the time)" in " ".join(done.stdout.split())
    done = attnbench.run("doctor", EMULATED_NVML="mig")
    assert "; MIG instance; clock, power" in " ".join(done.stdout.split())


@pytest.mark.long
def test_a_check_counts_on_the_gpu(attnbench):
    models = ("--device", "cuda", "--models", "fastformer")
    sizes = ("--lengths", "16", "--mode", "inference")
    done = attnbench.run("check", "--save", "base.json", *models, *sizes)
    assert done.returncode == 0, done.stderr
    saved = json.loads((attnbench.folder / "base.json").read_text())
    assert all(label.endswith("/cuda") for label in saved["cases"])
    done = attnbench.run("check", "--baseline", "base.json", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["exit_code"] == 0
