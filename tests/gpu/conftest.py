"""Tests marked `gpu` need a CUDA device of their own: `pytest -m gpu tests/gpu`.

Without a device one test of each file is skipped, with the reason, and the others are not selected.
What a test finds out is among the properties of its case in a report in JUnit's format
(`--junitxml`), and, as soon as it is found, a line of the file that ATTNBENCH_ANSWERS names. What
passed is a line of the file that ATTNBENCH_PASSED names, and is left out the next time.

A test whose kernel breaks the GPU for its process ends that process: with `-n` another one takes
over, else the run.
"""

import json
import os
from pathlib import Path

import pytest
import torch

from attnbench.devices import system
from attnbench.devices.finding import find
from attnbench.devices.out_of_memory import device_failure

BEFORE = pytest.StashKey[frozenset[str]]()  # tests that passed in an earlier run
BROKEN = 3  # exit code of a process whose GPU no longer works


def pytest_configure(config):
    """All processes of a run, and those that replace them, leave out the same tests."""
    file = os.environ.get("ATTNBENCH_PASSED")
    if hasattr(config, "workerinput"):
        before = config.workerinput.get("passed", ())
    else:
        before = Path(file).read_text().splitlines() if file and Path(file).exists() else ()
    config.stash[BEFORE] = frozenset(before)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    """Tells a process of pytest-xdist."""
    node.workerinput["passed"] = sorted(node.config.stash[BEFORE])


def pytest_runtest_logreport(report):
    """Once for each test, in the process that prints."""
    file = os.environ.get("ATTNBENCH_PASSED")
    if file and report.when == "call" and report.passed and "PYTEST_XDIST_WORKER" not in os.environ:
        with open(file, "a") as passed:
            print(report.nodeid, file=passed)


def pytest_sessionfinish(session, exitstatus):
    """That nothing was left to be done is no failure."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.config.stash[BEFORE]:
        session.exitstatus = pytest.ExitCode.OK


def pytest_collection_modifyitems(config, items):
    leave_out(config, items, [item for item in items if item.nodeid in config.stash[BEFORE]])
    if not find("cuda").missing():
        return
    of_file = {}
    for item in items:
        if item.get_closest_marker("gpu"):
            of_file.setdefault(item.path, []).append(item)
    leave_out(config, items, [item for first, *others in of_file.values() for item in others])


def leave_out(config, items, left_out):
    """Do not run these."""
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
    monkeypatch.setattr(system, "mallopt", lambda parameter, value: None)
    torch.use_deterministic_algorithms(False)  # which not every operator has on a GPU
    device.select()
    yield
    torch.use_deterministic_algorithms(True)
    end_where_broken(request.node.name)
    device.release()


def end_where_broken(name):
    """Every further test of this process would fail for what this one did."""
    if reason := device_failure():
        if "PYTEST_XDIST_WORKER" in os.environ:
            os._exit(BROKEN)
        pytest.exit(f"{name} broke the GPU: {reason}", BROKEN)


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
