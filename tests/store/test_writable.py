"""A folder that cannot take a sweep is refused before anything is measured."""

import os

import pytest

from attnbench.errors import StoreError
from attnbench.store.journal import FILE, refuse_unwritable
from tests.store.test_output import small_files


def test_nothing_stays_in_a_folder_that_can_be_written(tmp_path):
    refuse_unwritable(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []


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


def test_a_place_without_room_is_refused(tmp_path):
    with pytest.raises(StoreError, match="file too large"), small_files():
        refuse_unwritable(tmp_path / "new")
