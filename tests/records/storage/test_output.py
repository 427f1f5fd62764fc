"""Output files: whole or untouched, never through a link, nothing left behind."""

import errno
import os
import resource
import stat
from contextlib import contextmanager
from pathlib import Path

import pytest

from attnbench.errors import StoreError
from attnbench.records.storage.output import refuse_unwritable, write, writing


def test_a_file_is_replaced_whole(tmp_path):
    (tmp_path / "a").write_bytes(b"older and longer")
    write(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_what_is_no_file_is_left_alone(tmp_path):
    (tmp_path / "target").write_bytes(b"mine")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    for path in (tmp_path / "link", Path("/dev/null")):
        with pytest.raises(StoreError, match="it is not a regular file; move the file"):
            write(path, b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"mine"
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_permissions_follow_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        write(tmp_path / "a", b"new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


@contextmanager
def small_files(size=4096):
    """No file may have more bytes, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_leaves_the_older_file_and_nothing_else(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    said = r"'.*a': file too large; raise .*; delete some"
    with pytest.raises(StoreError, match=said), small_files():
        write(tmp_path / "a", b"x" * 100_000, then="; delete some")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def refusals(folder):
    """Places that cannot be written, each with the advice that fits."""
    (folder / "file").touch()
    (folder / "folder").mkdir()
    (folder / "loop").symlink_to("loop")
    yield folder / "folder", "name a file, not a folder"
    yield folder / "file" / "a", "move the file that is in the way"
    yield folder / "no" / "a", "create its folder first"
    yield folder / ("x" * 300), "choose a shorter name"
    yield folder / "loop" / "a", "remove the symbolic link"
    yield Path("\0"), "correct that"


def test_advice_fits_the_reason_before_and_after_the_work(tmp_path):
    for path, advice in refusals(tmp_path):
        message = f"cannot write .*; {advice}$"
        with pytest.raises(StoreError, match=message):
            write(path, b"")
        with pytest.raises(StoreError, match=message):
            refuse_unwritable(path)
    refuse_unwritable(tmp_path / "new", None)
    assert {path.name for path in tmp_path.iterdir()} == {"file", "folder", "loop"}


@pytest.mark.parametrize(
    ("number", "advice"),
    [(errno.ENOSPC, "free some space there"), (errno.EROFS, "make that file system writable")],
)
def test_a_full_and_a_read_only_file_system_have_advice_of_their_own(number, advice):
    said = f"^cannot write 'it': {os.strerror(number).lower()}; {advice}; nothing is lost$"
    with pytest.raises(StoreError, match=said), writing("it", "; nothing is lost"):
        raise OSError(number, os.strerror(number))
