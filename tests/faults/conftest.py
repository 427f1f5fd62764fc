"""What several tests of faults share: one finished sweep, and a place of its own for each mount."""

import os
import shutil
import subprocess

import pytest

from tests.faults.real import SMALL, attnbench, said


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The folder of a finished sweep; not to be written."""
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
    """Opens a mount namespace after some shell commands; gives what to put before a command.

    What is mounted there shows nowhere else, and is gone with the test.
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
