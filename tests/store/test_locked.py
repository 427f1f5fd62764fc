"""What is appended stays."""

import errno
import os

import pytest

from attnbench.errors import StoreError
from attnbench.store import locked
from attnbench.store.locked import LockedFile
from tests.store.recorded import opened


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
