"""A file with one writer; each append is on the disk as a whole or not at all."""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path


class LockedFile:
    """Created if necessary, opened for appending, and locked against other writers until closed.

    `content` is what the file held when it was opened. Raises `BlockingIOError` if another writer
    has the file, and `OSError` if it cannot be opened, locked or read, also where it is a pipe, a
    device or a symbolic link.
    """

    def __init__(self, path: Path) -> None:
        import fcntl  # not on Windows, where sweeps are read but never written

        flags = os.O_RDWR | os.O_APPEND | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CREAT
        self._fd = os.open(path, flags, 0o666)
        try:
            if not stat.S_ISREG(os.fstat(self._fd).st_mode):
                raise FileExistsError(errno.EEXIST, f"{path.name} is not a regular file")
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with open(self._fd, "rb", closefd=False) as file:
                self.content = file.read()
            if not self.content:
                with suppress(OSError):  # a system may not sync folders, with the names in them
                    folder = os.open(path.parent, os.O_RDONLY)
                    os.fsync(folder)
                    os.close(folder)
        except BaseException:
            self.close()
            raise

    def append(self, data: bytes) -> None:
        """Append all of the bytes and sync, or none of them and raise `OSError`."""
        end, left = os.fstat(self._fd).st_size, data
        try:
            while left:
                left = left[os.write(self._fd, left) :]
            os.fsync(self._fd)
        except BaseException:
            # not only OSError: Ctrl-C may come between two writes
            with suppress(OSError):
                self.cut(end)
            raise

    def cut(self, size: int) -> None:
        """Remove everything after the first `size` bytes."""
        os.ftruncate(self._fd, size)

    def close(self) -> None:
        """Release the file; closing twice is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
