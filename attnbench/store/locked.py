"""A file with one writer; each append is on the disk as a whole or not at all."""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path


class LockedFile:
    """Created if necessary, opened for appending, and locked against other writers until closed.

    `content` is what the file held when it was opened. Raises `BlockingIOError` if another writer
    has the file, and `OSError` if it cannot be opened, locked or read.
    """

    def __init__(self, path: Path) -> None:
        self._fd = opened(path)
        try:
            if not lock(self._fd):
                raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
            with open(self._fd, "rb", closefd=False) as file:
                self.content = file.read()
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


def opened(path: Path) -> int:
    """A file opened for reading and appending, created if necessary.

    Raises `OSError`, also for a pipe, a device or a symbolic link.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CREAT
    fd = os.open(path, flags, 0o666)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OSError(errno.EEXIST, f"{path.name} is not a regular file")


def sync_folder(folder: Path) -> None:
    """Write the file names of a folder to the disk, where the system can."""
    with suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def lock(fd: int) -> bool:
    """Lock an open file; False where its file system has no locks. Raises `BlockingIOError`."""
    import fcntl  # not on Windows, where sweeps are read but never written

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True
