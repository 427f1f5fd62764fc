"""A file with one writer: whole appends, and what others did to it."""

import os

import pytest

from attnbench.records.storage.locked import JournalChange, LockedFile


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


@pytest.fixture
def file(tmp_path):
    """One with a line, that this process writes."""
    opened = LockedFile(tmp_path / "file")
    opened.append(b"one\n")
    yield opened
    opened.close()


def test_a_file_has_one_writer_until_it_is_closed(tmp_path, file):
    with pytest.raises(BlockingIOError):
        LockedFile(tmp_path / "file")
    file.close()
    file.close()
    other = LockedFile(tmp_path / "file")
    assert other.content == b"one\n"
    other.close()


def test_what_is_cut_is_gone_from_the_file_and_from_what_it_shall_hold(tmp_path, file):
    file.append(b"torn")
    file.cut(4)
    file.append(b"two\n")
    assert file.content == (tmp_path / "file").read_bytes() == b"one\ntwo\n"
    assert file.disturbance(thorough=True) is None


@pytest.mark.parametrize(
    ("disturb", "change"),
    [
        (lambda path: path.unlink(), JournalChange.GONE),
        (lambda path: path.rename(path.with_name("moved")), JournalChange.GONE),
        (lambda path: (path.unlink(), path.write_bytes(b"one\n")), JournalChange.REPLACED),
        (lambda path: os.truncate(path, 2), JournalChange.SHORTENED),
        (lambda path: path.write_bytes(b"two\n"), JournalChange.CHANGED),
        (lambda path: path.write_bytes(b"one\ntwo\n"), JournalChange.CHANGED),
        (lambda path: os.utime(path, (1, 1)), None),
        (lambda path: path.chmod(0o400), None),
    ],
)
def test_what_others_did_to_the_file_is_told_apart(tmp_path, file, disturb, change):
    disturb(tmp_path / "file")
    assert file.disturbance(thorough=True) is change


def test_a_link_or_a_folder_is_never_written(tmp_path):
    (tmp_path / "target").write_bytes(b"mine")
    (tmp_path / "link").symlink_to("target")
    (tmp_path / "folder").mkdir()
    for name in ("link", "folder"):
        with pytest.raises(OSError, match=r"symbolic links|directory"):
            LockedFile(tmp_path / name)
    assert (tmp_path / "target").read_bytes() == b"mine"
