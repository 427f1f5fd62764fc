"""The next check removes what a killed one left, but not what a living one uses."""

import os
import signal
import subprocess
import sys

import pytest

from attnbench.gate import repository as git_repository
from attnbench.run import scratch
from attnbench.run.scratch import Scratch, abandoned
from tests.gate.repositories import Repository

HOLD = """
import sys
from pathlib import Path
from attnbench.gate.repository import checkout
with checkout(Path(sys.argv[1]), "HEAD") as tree:
    print(tree, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def repository(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return Repository(tmp_path / "repo")


def holder(repository):
    """A process that has checked out the repository and waits for its input to end."""
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, repository.folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_the_folder_of_a_killed_process_is_removed_and_that_of_a_living_one_stays(repository):
    before = repository.state
    with holder(repository) as dead, holder(repository) as alive:
        gone, kept = (each.stdout.readline().strip() for each in (dead, alive))
        dead.send_signal(signal.SIGKILL)
        dead.wait()
        with git_repository.checkout(repository.folder, "HEAD") as tree:
            assert (tree / "small.py").exists()
            assert not os.path.exists(gone)
            assert os.path.exists(f"{kept}/small.py")
            assert repository.state == before
        alive.communicate("")
    assert alive.returncode == 0
    assert not list(abandoned())


def test_files_of_others_stay(repository, tmp_path, monkeypatch):
    own = Scratch()
    linked = tmp_path / f"{scratch.PREFIX}link"
    linked.symlink_to(own.folder)
    (tmp_path / f"{scratch.PREFIX}file").write_text("")
    assert not list(abandoned())
    left = tmp_path / f"{scratch.PREFIX}left"
    left.mkdir()
    assert list(abandoned()) == [left]
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert not list(abandoned())
    own.close()
    own.close()
    assert not own.folder.exists()


def test_a_new_folder_replaces_abandoned_ones(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    used = Scratch()
    (tmp_path / f"{scratch.PREFIX}left").mkdir()
    own = Scratch()
    assert set(tmp_path.iterdir()) == {used.folder, own.folder}
    own.close()
    used.close()
