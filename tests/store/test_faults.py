"""What stops a sweep, for real: a second writer, kill -9, a full disk, a folder that is closed."""

import errno
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from attnbench.errors import StoreError, SweepBusy
from attnbench.store import journal, locked
from attnbench.store.journal import FILE, TORN, load
from attnbench.store.locked import LockedFile
from tests.store.recorded import SMALL, entries, opened

WRITER = Path(__file__).with_name("writer.py")


def start_writer(*arguments: object) -> subprocess.Popen[str]:
    """A second process that writes runs; it prints each number once it is on the disk."""
    return subprocess.Popen(
        [sys.executable, str(WRITER), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(journal.__file__).parents[2])},
    )


def test_two_processes_never_write_one_folder(tmp_path):
    with start_writer(tmp_path, 1, "wait") as other:
        assert other.stdout.readline() == "0\n"
        with pytest.raises(SweepBusy, match=f"is being written by process {other.pid};"):
            opened(tmp_path)
        assert len(load(tmp_path).runs) == 1
        other.stdin.close()
        assert other.wait() == 0
    opened(tmp_path).close()


def test_a_killed_writer_loses_at_most_the_run_in_flight(tmp_path):
    rng = random.Random(5)
    rounds, acknowledged = 60, set()
    for _ in range(6):
        with start_writer(tmp_path, rounds) as writer:
            for _ in range(rng.randrange(1, 9)):
                acknowledged.add(int(writer.stdout.readline()))
            writer.kill()
            acknowledged |= {int(line) for line in writer.stdout if line.endswith("\n")}
        sweep = load(tmp_path)
        assert acknowledged <= {run.round for run in sweep.runs}
        assert sweep.warnings in ((), (TORN,))
    with start_writer(tmp_path, rounds) as writer:
        writer.communicate()
    sweep = load(tmp_path)
    assert sweep.finished
    assert sweep.warnings == ()
    assert [run.round for run in sweep.runs] == list(range(rounds))
    assert sum(entry.kind == "run" for entry in entries(tmp_path)) == rounds
    assert len(sweep.sessions) >= 2


@pytest.mark.parametrize("limit", [200_000, 200_001, 263_017])
def test_a_full_disk_leaves_a_journal_that_can_be_resumed(tmp_path, limit):
    with start_writer(tmp_path, 60, "limit", limit) as writer:
        *written, error = writer.communicate()[0].splitlines()
    assert "file too large; raise the file size limit and --resume" in error
    sweep = load(tmp_path)
    assert sweep.warnings == ()
    assert [str(run.round) for run in sweep.runs] == written
    assert (tmp_path / FILE).stat().st_size <= limit
    with start_writer(tmp_path, 60) as writer:
        writer.communicate()
    assert len(load(tmp_path).runs) == 60


def test_a_journal_is_a_regular_file(tmp_path):
    """To open a pipe waits for whoever writes it, and a link leads to another sweep's folder."""
    os.mkfifo(tmp_path / FILE)
    with pytest.raises(StoreError, match="no sweep in"):
        load(tmp_path)
    with pytest.raises(StoreError, match=r"sweep.jsonl is not a regular file; move .* or"):
        opened(tmp_path)
    (tmp_path / FILE).rename(tmp_path / "pipe")
    (tmp_path / "other").write_bytes(SMALL)
    (tmp_path / FILE).symlink_to("other")
    assert load(tmp_path).warnings == ()
    with pytest.raises(StoreError, match=r"remove the symbolic link and --resume"):
        opened(tmp_path)
    assert (tmp_path / "other").read_bytes() == SMALL


def test_what_is_appended_is_on_the_disk_or_not_in_the_file(tmp_path, monkeypatch):
    synced = []
    file = LockedFile(tmp_path / "file")
    with monkeypatch.context() as system:
        system.setattr(os, "fsync", lambda fd: synced.append(os.pread(fd, 100, 0)))
        file.append(b"one\n")
        file.append(b"two\n")
    assert synced == [b"one\n", b"one\ntwo\n"]

    def full(fd):
        raise OSError("no space left on device")

    with monkeypatch.context() as system:
        system.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="no space left"):
            file.append(b"three\n")
    file.close()
    assert (tmp_path / "file").read_bytes() == b"one\ntwo\n"


def test_a_file_that_cannot_be_locked_is_refused(tmp_path, monkeypatch):
    """Else two sweeps might write it at once."""

    def lock(fd):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(locked, "lock", lock)
    said = "cannot write .*: no locks available; choose a file system that has locks, or choose"
    with pytest.raises(StoreError, match=said):
        opened(tmp_path)
