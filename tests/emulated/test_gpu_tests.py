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

ROOT = Path(__file__).parents[2]
CHOSEN = {
    "memory": "not float16 or bfloat16",  # products in float16 take minutes on a CPU
    # torch.compile needs a real driver for flex_attention, at the latest in its backward pass
    "questions": "not flex and (not kernels or (float32 and not 128))",
    "endings": "out_of_memory or Dies",
    "parity": "(transformer-0-eager or fastformer-0-eager or linformer-0-eager) and not compiled",
    "timing": "",
}


@pytest.mark.faults
@pytest.mark.parametrize(("module", "which"), CHOSEN.items())
def test_a_test_for_a_gpu_runs(module, which, tmp_path):
    settings = emulated.environment(tmp_path, EMULATED_CUDA_TENSORS=1, PYTEST_ADDOPTS="")
    if module == "endings":
        settings["EMULATED_CUDA_SHARED"] = str(tmp_path)
    env = environment(**settings)
    env.pop("PYTEST_XDIST_WORKER", None)  # this process has the emulated device alone
    # rewriting assertions, pytest would import modules of the package past `startup`
    plain = ("--assert=plain", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", "-m", "gpu", *plain]
    done = subprocess.run(
        [*command, f"tests/gpu/test_{module}.py", "-k", which],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert " skipped" not in done.stdout


def test_what_torch_says_of_itself_as_it_loads_its_compiler_is_no_error():
    """Or `pytest -m gpu tests/gpu`, as documented, would fail on its release 2.11."""
    said = "`torch.jit.script_method` is deprecated. Please switch to `torch.compile`."
    warnings.warn(said, DeprecationWarning, stacklevel=1)
