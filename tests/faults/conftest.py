"""Fixtures of the fault tests: one finished sweep, and a separate namespace for each mount."""

import os
import shutil
import subprocess

import pytest

from tests.faults.real import SMALL, attnbench, said


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The folder of a finished sweep, which tests must not change."""
    folder = tmp_path_factory.mktemp("faults") / "finished"
    said(attnbench("sweep", *SMALL, "--out", folder), 0)
    return folder


@pytest.fixture
def swept(finished, tmp_path):
    """A copy of the journal of a finished sweep."""
    (tmp_path / "swept").mkdir()
    shutil.copy(finished / "sweep.jsonl", tmp_path / "swept")
    return tmp_path / "swept"


@pytest.fixture
def mounts():
    """Opens a mount namespace by shell commands; returns the words that run a command inside it.

    Its mounts are not visible elsewhere and end with the test.
    """
    held = []

    def opened(setup):
        own = [] if os.geteuid() == 0 else ["--map-root-user"]
        words = ["unshare", *own, "--mount", "--propagation", "private"]
        try:
            process = subprocess.Popen(
                [*words, "sh", "-c", f"{setup} && echo ready && exec cat"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        except OSError as error:
            pytest.skip(f"no mount namespace: {error}")
        held.append(process)
        if process.stdout.readline() != "ready\n":
            pytest.skip(f"nothing can be mounted here: {process.stderr.read().strip()}")
        joined = ["--user", "--preserve-credentials"] * bool(own)
        return ["nsenter", *joined, "--mount", "--target", str(process.pid)]

    yield opened
    for process in held:
        process.communicate()
