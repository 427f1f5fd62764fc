"""Tests that need a GPU, on the emulated one: without one, at least their bodies have run.

What needs silicon is left out: kernels of known speed, and a device that is busy or computes.
"""

import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from tests import emulated
from tests.commands.commands import environment
from tests.gpu import conftest

ROOT = Path(__file__).parents[2]
CHOSEN = {
    "memory": "not float16 or bfloat16",  # products in float16 take minutes on a CPU
    # torch.compile needs a real driver for flex_attention, at the latest in its backward pass
    "questions": "not flex and (not kernels or (float32 and not 128))",
    "decoding": "(latent or forgetting or native_sparse) and not eager",
    "endings": "out_of_memory or Dies",
    "parity": "(transformer-0-eager or fastformer-0-eager or linformer-0-eager) and not compiled",
    "timing": "",
}


def tried(folder, *arguments, **settings):
    """What `pytest -m gpu` does with these arguments on the emulated device."""
    settings = emulated.environment(folder, EMULATED_CUDA_TENSORS=1, PYTEST_ADDOPTS="", **settings)
    env = environment(**settings)
    env.pop("PYTEST_XDIST_WORKER", None)  # this process has the emulated device alone
    # rewriting assertions, pytest would import modules of the package past `startup`
    plain = ("--assert=plain", "-p", "no:cacheprovider")
    plain += ("-o", "filterwarnings=default")  # other versions than the pinned ones warn, too
    command = [sys.executable, "-m", "pytest", "-m", "gpu", *plain, *arguments]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


@pytest.mark.faults
@pytest.mark.parametrize(("module", "which"), CHOSEN.items())
def test_a_test_for_a_gpu_runs(module, which, tmp_path):
    settings = {"EMULATED_CUDA_SHARED": str(tmp_path)} if module == "endings" else {}
    done = tried(tmp_path, f"tests/gpu/test_{module}.py", "-k", which, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert " skipped" not in done.stdout


@pytest.mark.long
def test_tests_of_decoding_run_and_what_passed_is_not_done_again(tmp_path):
    passed = tmp_path / "passed"
    which = ("tests/gpu/test_decoding.py", "-k", "(latent-0-absorbed or forgetting-0-sdpa)")
    for again in (False, True):
        done = tried(tmp_path, *which, ATTNBENCH_PASSED=passed)
        assert done.returncode == 0, done.stdout + done.stderr
        assert (" passed" in done.stdout) != again
    found = passed.read_text().splitlines()
    assert len(found) == len(set(found)) >= 4
    passed.write_text("\n".join(found[1:]) + "\n")
    done = tried(tmp_path, *which, "-n", "2", ATTNBENCH_PASSED=passed)
    assert done.returncode == 0, done.stdout + done.stderr
    assert passed.read_text().splitlines() == [*found[1:], found[0]]


@pytest.mark.long
def test_all_tests_for_a_gpu_can_be_collected(tmp_path):
    done = tried(tmp_path, "tests/gpu", "--collect-only")
    assert done.returncode == 0, done.stdout + done.stderr
    for module in CHOSEN:
        assert f"tests/gpu/test_{module}.py" in done.stdout


def test_a_process_whose_gpu_is_broken_runs_no_further_test(monkeypatch):
    codes = []
    monkeypatch.setattr(conftest.os, "_exit", codes.append)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    conftest.end_where_broken("test_it")
    monkeypatch.setattr(conftest, "device_failure", lambda: "misaligned address")
    with pytest.raises(pytest.exit.Exception, match="test_it broke the GPU: misaligned address"):
        conftest.end_where_broken("test_it")
    assert not codes
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    with pytest.raises(pytest.exit.Exception):  # which `_exit` would have forestalled
        conftest.end_where_broken("test_it")
    assert codes == [conftest.BROKEN]


def test_what_torch_says_of_itself_as_it_loads_its_compiler_is_no_error():
    """Or `pytest -m gpu tests/gpu`, as documented, would fail on its release 2.11."""
    said = "`torch.jit.script_method` is deprecated. Please switch to `torch.compile`."
    warnings.warn(said, DeprecationWarning, stacklevel=1)
