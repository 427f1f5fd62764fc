"""A file has one writer."""

import pytest

from attnbench.store.locked import LockedFile


def test_a_second_writer_is_refused(tmp_path):
    first = LockedFile(tmp_path / "file", create=True)
    assert first.locked
    with pytest.raises(BlockingIOError):
        LockedFile(tmp_path / "file")
    first.close()
    LockedFile(tmp_path / "file").close()
