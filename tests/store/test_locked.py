"""A file has one writer, also where locks are the system's other kind."""

import sys
from types import SimpleNamespace

import pytest

from attnbench.store.locked import LockedFile


def test_a_second_writer_is_refused(tmp_path):
    first = LockedFile(tmp_path / "file", create=True)
    assert first.locked
    with pytest.raises(BlockingIOError):
        LockedFile(tmp_path / "file")
    first.close()
    LockedFile(tmp_path / "file").close()


def test_windows_locks_one_byte_and_says_who_was_first(tmp_path, monkeypatch):
    held = []

    def locking(fd, mode, count):
        if held:
            raise PermissionError
        held.append(count)

    fake = SimpleNamespace(locking=locking, LK_NBLCK=2)
    monkeypatch.setitem(sys.modules, "msvcrt", fake)
    monkeypatch.setattr(sys, "platform", "win32")
    first = LockedFile(tmp_path / "file", create=True)
    first.append(b"one")
    assert (first.locked, held) == (True, [1])
    with pytest.raises(BlockingIOError):
        LockedFile(tmp_path / "file")
    first.append(b"two")
    first.close()
    assert (tmp_path / "file").read_bytes() == b"onetwo"
