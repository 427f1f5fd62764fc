"""A file with one writer; each append is on the disk as a whole or not at all."""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path


class LockedFile:
    """Opened for appending and locked against other writers until it is closed.

    A lock binds only programs that ask for it, and another file can get the same name: `intruder`
    says what another program did. `content` is what the file held when it was opened and all that
    was appended. `locked` is False where the system has no locks.

    Raises `BlockingIOError` if another writer has the file, and `OSError` if it cannot be opened
    or read.
    """

    def __init__(self, path: Path, *, create: bool = False) -> None:
        self._path = path
        self._fd = opened(path, create=create)
        try:
            self.locked = lock(self._fd)
            self.content = self._read()
            self._state = os.fstat(self._fd)
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
        self.content += data
        self._state = os.fstat(self._fd)

    def cut(self, size: int) -> None:
        """Remove everything after the first `size` bytes."""
        os.ftruncate(self._fd, size)
        self._state = os.fstat(self._fd)
        self.content = self.content[:size]

    def intruder(self) -> str:
        """What another program did to the file since the last append, as a participle, or empty."""
        try:
            named = os.stat(self._path)
        except FileNotFoundError:
            return "deleted or moved"
        if not os.path.samestat(named, self._state):
            return "replaced"
        # a backup may have changed the time alone; the content decides
        same_time = named.st_mtime_ns == self._state.st_mtime_ns
        same = named.st_size == len(self.content) and (same_time or self._read() == self.content)
        return "" if same else "changed"

    def close(self) -> None:
        """Release the file; closing twice is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _read(self) -> bytes:
        with open(self._fd, "rb", closefd=False) as file:
            file.seek(0)
            return file.read()


def opened(path: Path, *, create: bool = False) -> int:
    """A file opened for reading and appending. Raises `OSError`, also for a pipe or a device."""
    flags = os.O_RDWR | os.O_APPEND | os.O_NONBLOCK | (os.O_CREAT * create)
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
