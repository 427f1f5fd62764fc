"""A folder that cannot take a sweep is refused before anything is measured, and left as it was."""

import os
import subprocess
import sys

import pytest

from attnbench.errors import StoreError
from attnbench.store.journal import FILE, refuse_unwritable


@pytest.mark.parametrize("path", ["", "new", "a/b/c"])
def test_a_folder_that_can_be_written_is_left_as_it_was(tmp_path, path):
    refuse_unwritable(tmp_path / path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["file", "file/below", "link"])
def test_what_is_no_folder_is_refused(tmp_path, path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "at all")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(StoreError, match=r"cannot write .*; move the file .*, or choose another"):
        refuse_unwritable(tmp_path / path)
    assert sorted(tmp_path.iterdir()) == before


def test_a_journal_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / FILE).mkdir()
    with pytest.raises(StoreError, match="is a directory"):
        refuse_unwritable(tmp_path)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match="permission denied"):
        refuse_unwritable(tmp_path / "new")


def test_a_place_without_room_is_refused_and_left_as_it_was(tmp_path):
    """A limit of file sizes stands for a full disk."""
    code = (
        "import pathlib, resource, sys\n"
        "from attnbench.store.journal import refuse_unwritable\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "refuse_unwritable(pathlib.Path(sys.argv[1]))\n"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "new")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "StoreError: cannot write" in done.stderr
    assert "file too large" in done.stderr
    assert list(tmp_path.iterdir()) == []
