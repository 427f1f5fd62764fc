"""Devices are found by name; what each can, and why it cannot be used.

A further one is added in `test_additions.py`.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import torch  # noqa: F401 -- loads libraries, which tests with another CDLL must not

from attnbench.devices.finding import choose, find
from attnbench.devices.kinds import cuda
from attnbench.errors import CannotRun, UsageError
from attnbench.running.pool import TORCH
from attnbench.running.session import SHARED

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "name", ["", "cpu ", "CPU", "cuda:", "cuda:-1", "cuda:1234", "cuda:01", "__init__", "a.b"]
)
def test_what_names_no_device_is_refused(name):
    with pytest.raises(UsageError, match="is not auto, cpu, cuda"):
        find(name)


@pytest.mark.parametrize(
    ("count", "built", "chosen"), [(0, True, "cpu"), (2, False, "cpu"), (2, True, "cuda")]
)
def test_auto_takes_a_gpu_that_torch_can_use(monkeypatch, count, built, chosen):
    monkeypatch.setattr(cuda, "device_count", lambda: count)
    monkeypatch.setattr(cuda, "built_for", lambda platform: built and platform == "cuda")
    assert choose("auto").name == chosen
    if not count:
        with pytest.raises(CannotRun, match="this machine has 0 CUDA devices"):
            choose("cuda")
    elif not built:
        with pytest.raises(CannotRun, match="without CUDA"):
            choose("cuda:1")
    else:
        assert choose("cuda:1").index == 1
        with pytest.raises(CannotRun, match="this machine has 2 CUDA devices"):
            choose("cuda:2")


@pytest.mark.parametrize("name", ["cpu", "cuda"])
def test_torch_compiles_only_with_the_headers_of_python(monkeypatch, tmp_path, name):
    monkeypatch.setattr(f"attnbench.devices.kinds.{name}.which", lambda program: program)
    monkeypatch.setattr(cuda, "find_spec", lambda package: package)
    monkeypatch.setattr("sysconfig.get_path", lambda kind: str(tmp_path))
    assert "C headers of Python (Python.h): install" in find(name).cannot_compile()
    (tmp_path / "Python.h").touch()
    assert find(name).cannot_compile() == ""


@pytest.mark.long
def test_what_is_loaded_before_processes_fork_is_not_the_compiler():
    """Up to torch 2.11 it asks for GPUs as it loads, and the driver survives no fork."""
    loaded = "; ".join(f"import {name}" for name in (*TORCH, *SHARED))
    code = f"{loaded}; import sys; sys.exit('torch._inductor.compile_fx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
