"""Tests marked `gpu` need a CUDA device of their own: `pytest -m gpu tests/gpu`.

Without a device their files are skipped, with the reason. What a test finds out is among the
properties of its case in a report in JUnit's format (`--junitxml`).
"""

import os

import pytest
import torch

from attnbench.device import find
from attnbench.measure import allocator


class WithoutDevice(pytest.Module):
    """A file whose tests cannot run here."""

    def collect(self):
        pytest.skip(find("cuda").missing(), allow_module_level=True)


def pytest_pycollect_makemodule(module_path, parent):
    if "pytest.mark.gpu" in module_path.read_text() and find("cuda").missing():
        return WithoutDevice.from_parent(parent, path=module_path)
    return None


@pytest.fixture(autouse=True)
def on_a_gpu(request, monkeypatch):
    """Torch as a measuring process has it."""
    if request.node.get_closest_marker("gpu") is None:
        yield
        return
    device = find("cuda")
    monkeypatch.setattr(allocator, "mallopt", lambda parameter, value: None)
    torch.use_deterministic_algorithms(False)  # which not every operator has on a GPU
    device.select()
    yield
    torch.use_deterministic_algorithms(True)
    device.release()


@pytest.fixture
def answer(record_property):
    """Records what was found: `answer(question, value)`."""

    def record(question, found):
        record_property(question, str(found))
        print(f"{question}: {found}")

    return record


@pytest.fixture
def alone():
    """For tests of time: they need the device to themselves."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        pytest.skip("times need the device alone; run without -n")
