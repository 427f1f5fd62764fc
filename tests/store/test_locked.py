"""What is appended stays."""

import os

import pytest

from attnbench.store.locked import LockedFile


def test_what_is_appended_is_on_the_disk_or_not_in_the_file(tmp_path, monkeypatch):
    synced = []
    file = LockedFile(tmp_path / "file", create=True)
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
