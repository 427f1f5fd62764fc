"""Machines without information: NVML missing or forbidden, and no /proc."""

import shutil
import subprocess
import sys

import pytest

from tests.faults.real import ROOT, SMALL, attnbench, complete, environment, said

NO_PERMISSION = """
int nvmlInit_v2(void) { return 4; }
int nvmlInitWithFlags(unsigned flags) { return 4; }
const char *nvmlErrorString(int code) { return "Insufficient Permissions"; }
"""


def missing(folder):
    """NVML's package cannot be imported."""
    (folder / "pynvml.py").write_text("raise ImportError('no module named pynvml here')\n")
    return {"PYTHONPATH": f"{folder}:{ROOT}"}, "does not answer: no module named pynvml here"


def forbidden(folder):
    """The driver's library exists but denies access."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler to build a driver library")
    source, library = folder / "nvml.c", folder / "libnvidia-ml.so.1"
    source.write_text(NO_PERMISSION)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    return {"LD_LIBRARY_PATH": str(folder)}, "does not answer: Insufficient Permissions"


def python(code, before=(), **env):
    """The completed process of some code."""
    command = [*before, sys.executable, "-c", code]
    return subprocess.run(
        command, env=environment(**env), capture_output=True, text=True, check=False
    )


@pytest.mark.faults
@pytest.mark.parametrize("state", [missing, forbidden])
def test_doctor_and_sweep_go_on_without_nvml(state, tmp_path):
    env, words = state(tmp_path)
    done = attnbench("doctor", "--device", "cpu", env=env)
    said(done, 0)
    assert f"NVML        {words}" in done.stdout
    said(attnbench("sweep", *SMALL, "--out", tmp_path / "sweep", env=env), 0)
    complete(tmp_path / "sweep")


HIDDEN = "mount -t tmpfs tmpfs /proc"


@pytest.mark.long
def test_a_process_starts_without_proc(mounts):
    code = (
        "from attnbench.running.session import measuring_server\n"
        "from attnbench.records.messages import Loads\n"
        "with measuring_server(1) as server, server.process() as worker:\n"
        "    print(worker.ask(Loads(mechanism='transformer', device='cpu'), 60).forms)\n"
    )
    done = python(code, before=mounts(HIDDEN))
    assert "'eager'" in done.stdout, done.stderr


@pytest.mark.faults
def test_doctor_and_sweep_go_on_without_proc(mounts, tmp_path):
    before = mounts(HIDDEN)
    done = attnbench("doctor", "--device", "cpu", before=before)
    said(done, 0)
    said(attnbench("sweep", *SMALL, "--out", tmp_path, before=before), 0)
    memory_runs = [run for run in complete(tmp_path).values() if run["part"] == "memory"]
    assert all(run["values"]["allocated_peak_bytes"] > 0 for run in memory_runs)
