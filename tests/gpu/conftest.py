"""Tests marked `gpu` need a CUDA device of their own: `pytest -m gpu tests/gpu`.

Without a device one test of each file is skipped, with the reason, and the others are not selected.
What a test finds out is among the properties of its case in a report in JUnit's format
(`--junitxml`), and, as soon as it is found, a line of the file that ATTNBENCH_ANSWERS names.
"""

import json
import os

import pytest
import torch

from attnbench.devices.finding import find
from attnbench.measuring import allocator


def pytest_collection_modifyitems(config, items):
    if not find("cuda").missing():
        return
    of_file = {}
    for item in items:
        if item.get_closest_marker("gpu"):
            of_file.setdefault(item.path, []).append(item)
    left_out = [item for first, *others in of_file.values() for item in others]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


@pytest.fixture(autouse=True)
def on_a_gpu(request, monkeypatch):
    """Skips without a device; within a test, torch is as a measuring process has it."""
    if request.node.get_closest_marker("gpu") is None:
        yield
        return
    device = find("cuda")
    if reason := device.missing():
        pytest.skip(reason)
    monkeypatch.setattr(allocator, "mallopt", lambda parameter, value: None)
    torch.use_deterministic_algorithms(False)  # which not every operator has on a GPU
    device.select()
    yield
    torch.use_deterministic_algorithms(True)
    device.release()


@pytest.fixture
def answer(record_property, request):
    """Records what was found: `answer(question, value)`."""

    def record(question, found):
        record_property(question, str(found))
        print(f"{question}: {found}")
        if file := os.environ.get("ATTNBENCH_ANSWERS"):
            line = {"test": request.node.name, "question": question, "found": str(found)}
            with open(file, "a") as answers:
                print(json.dumps(line, ensure_ascii=False), file=answers)

    return record


@pytest.fixture
def alone():
    """For tests of time: they need the device to themselves."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        pytest.skip("times need the device alone; run without -n")
