"""Temporary folders: in use while their maker lives, removed by whoever comes next."""

import fcntl
import os
import platform
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from attnbench.records.storage.temporary import TemporaryFolder, prefix, remove_left

MAKES = """
import subprocess, sys
from attnbench.records.storage.temporary import TemporaryFolder
folder = TemporaryFolder()
(folder.path / "deep").mkdir()
(folder.path / "deep" / "file").write_text("text")
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(folder.path, child.pid, flush=True)
sys.stdin.read()
"""
CYCLES = """
import sys
from attnbench.records.storage.temporary import TemporaryFolder
sys.stdin.readline()
for number in range(int(sys.argv[1])):
    with TemporaryFolder() as folder:
        (folder / "file").write_text(str(number))
        with TemporaryFolder():
            assert (folder / "file").read_text() == str(number)
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A folder of its own for the system's temporary files."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def folders(place):
    return sorted(path.name for path in place.iterdir())


def test_a_folder_is_empty_private_and_removed_with_what_it_holds(place):
    with TemporaryFolder() as folder:
        assert folder.parent == place.resolve()
        assert list(folder.iterdir()) == []
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "below").mkdir()
        (folder / "below" / "file").touch()
        with TemporaryFolder(folder) as inner:
            assert inner.parent == folder
    assert folders(place) == []
    made = TemporaryFolder()
    made.close()
    made.close()


def test_folders_of_a_killed_command_are_removed_by_the_next(place):
    """Although a process that the command started lives on."""
    command = [sys.executable, "-c", MAKES]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as maker:
        path, child = maker.stdout.readline().split()
        try:
            remove_left()
            assert (Path(path) / "deep" / "file").read_text() == "text", "it was in use"
            maker.kill()
            maker.wait()
            with TemporaryFolder() as own:
                assert folders(place) == [own.name]
        finally:
            os.kill(int(child), signal.SIGKILL)


def test_nothing_but_ones_own_folders_is_removed(place, monkeypatch):
    letters = "abcd_123"
    kept = {
        "attnbench-abcd1234",  # of an earlier release
        f"{prefix()}{letters}x",
        f"x{prefix()}{letters}",
        f"{prefix()}ABCDEFGH",
        f"attnbench_temporary_00000000_{letters}",  # of another machine
        "attnbench_temporary_",
    }
    for name in kept:
        (place / name).mkdir()
    (place / "target").mkdir()
    (place / "target" / "file").touch()
    (place / f"{prefix()}{letters}").symlink_to("target")
    (place / f"{prefix()}00000000").write_text("a file")
    remove_left()
    assert folders(place) == sorted([*kept, "target", prefix() + letters, prefix() + "00000000"])
    assert (place / "target" / "file").exists()
    (place / f"{prefix()}11111111").mkdir()
    with monkeypatch.context() as system:
        system.setattr(os, "getuid", lambda: 12345)
        remove_left()
    assert (place / f"{prefix()}11111111").exists(), "another user's"
    remove_left()
    assert not (place / f"{prefix()}11111111").exists()


def test_another_machines_folders_are_its_own(place, monkeypatch):
    """On a file system that both have, where neither sees the locks of the other."""
    with monkeypatch.context() as system:
        system.setattr(platform, "node", lambda: "another")
        (place / f"{prefix()}abcd_123").mkdir()
    remove_left()
    assert len(folders(place)) == 1
    monkeypatch.setattr(platform, "node", lambda: "another")
    remove_left()
    assert folders(place) == []


def test_a_folder_that_was_taken_before_it_was_locked_is_made_again(place, monkeypatch):
    """As if the next command removed it between two steps of its maker."""
    flock, taken = fcntl.flock, []

    def late(descriptor, how):
        if len(taken) < 3:
            (folder,) = place.iterdir()
            folder.rmdir()
            taken.append(folder)
            if len(taken) == 2:
                folder.mkdir()  # one of the same name
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with TemporaryFolder() as folder:
        assert len(taken) == 3
        remove_left()
        assert folder.is_dir()
    assert folders(place) == []


def test_a_folder_that_was_removed_is_held_again(place):
    with TemporaryFolder() as path:
        pass
    folder = TemporaryFolder()
    folder.path.rmdir()
    folder.hold()
    remove_left()
    assert folder.path.is_dir()
    folder.close()
    assert not folder.path.exists()
    assert not path.exists()


def test_without_locks_folders_are_made_and_none_is_taken_for_left(place, monkeypatch):
    def flock(*how):
        raise OSError("no locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with TemporaryFolder() as first, TemporaryFolder() as second:
        assert first.is_dir()
        assert second.is_dir()
    monkeypatch.setitem(sys.modules, "fcntl", None)  # as on Windows
    with TemporaryFolder() as first, TemporaryFolder() as second:
        assert first.is_dir()
        assert second.is_dir()
    assert folders(place) == []


def test_commands_that_start_and_end_at_once_leave_each_other_alone(place):
    """Three processes make and remove folders as fast as they can, each removing what is left."""
    command = [sys.executable, "-c", CYCLES, "150"]
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with ExitStack() as stack:
        commands = [stack.enter_context(subprocess.Popen(command, **pipes)) for _ in range(3)]
        for one in commands:
            one.stdin.write("\n")
            one.stdin.flush()
        errors = [one.communicate()[1] for one in commands]
    assert errors == [""] * 3
    assert folders(place) == []
