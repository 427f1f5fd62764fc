"""A file with one writer; each append is on the disk as a whole or not at all.

A lock holds off other writers that ask for it; nothing holds off `mv`, `rm` or an editor. So the
writer remembers what it wrote, and can say whether that is still what lies at its path.
"""

import errno
import os
import stat
from contextlib import suppress
from enum import StrEnum
from pathlib import Path


class JournalChange(StrEnum):
    """What others did to a file while its writer had it; the value continues its name."""

    GONE = "was deleted or moved away"
    REPLACED = "was replaced by another file"
    SHORTENED = "was shortened"
    CHANGED = "was changed by something else"


class LockedFile:
    """Created if necessary, opened for appending, and locked against other writers until closed.

    Raises `BlockingIOError` if another writer has the file, and `OSError` if it cannot be opened,
    locked or read, also where it is a pipe, a device or a symbolic link.
    """

    def __init__(self, path: Path) -> None:
        import fcntl  # not on Windows, where sweeps are read but never written

        flags = os.O_RDWR | os.O_APPEND | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CREAT
        self._path = path
        self._partial = b""  # appended in part, where not even that could be undone
        self._fd = os.open(path, flags, 0o666)
        try:
            if not stat.S_ISREG(os.fstat(self._fd).st_mode):
                raise FileExistsError(errno.EEXIST, f"{path.name} is not a regular file")
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._content = bytearray(self._stored())
            self._seen: tuple[int, int, int] | None = self._state()
            if not self._content:
                with suppress(OSError):  # a system may not sync folders, with the names in them
                    folder = os.open(path.parent, os.O_RDONLY)
                    os.fsync(folder)
                    os.close(folder)
        except BaseException:
            self.close()
            raise

    @property
    def content(self) -> bytes:
        """What the file shall hold: what it held when it was opened, and what was appended."""
        return bytes(self._content)

    def append(self, data: bytes) -> None:
        """Append all of the bytes and sync, or none of them and raise `OSError`."""
        end = os.fstat(self._fd).st_size
        left = data
        length = len(self._content)
        try:
            self._partial = data
            while left:
                left = left[os.write(self._fd, left) :]
            os.fsync(self._fd)
            self._content += data
            self._partial = b""
            state = self._state()
            # one who cut the file just now shall not be overlooked at the next append
            self._seen = state if state[0] == len(self._content) else None
        except BaseException:
            # not only OSError: Ctrl-C may come between two writes
            del self._content[length:]
            with suppress(OSError):
                # where somebody has cut the file meanwhile, zeros would follow
                if os.fstat(self._fd).st_size > end:
                    os.ftruncate(self._fd, end)
            raise

    def cut(self, size: int) -> None:
        """Remove everything after the first `size` bytes."""
        os.ftruncate(self._fd, size)
        del self._content[size:]
        self._partial = b""
        self._seen = self._state()

    def disturbance(self, thorough: bool = False) -> JournalChange | None:
        """What others did to the file, or to its name, since it was opened; None if nothing.

        The bytes are compared where the system has noted a change since the last append, and
        anyway if the check shall be `thorough`. New times or permissions alone are no disturbance,
        nor is it one if the path cannot be looked at. Raises `OSError` if the file cannot be read.
        """
        try:
            there = os.stat(self._path, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return JournalChange.GONE
        except OSError:
            there = os.fstat(self._fd)
        here = os.fstat(self._fd)
        if not os.path.samestat(there, here):
            return JournalChange.REPLACED
        if self._state() == self._seen and not thorough:
            return None
        stored = self._stored()
        ours = stored[: len(self._content)]
        more = stored[len(self._content) :]
        if ours == self._content and self._partial.startswith(more):
            self._seen = self._state()
            return None
        shorter = len(ours) < len(self._content) and self._content.startswith(ours)
        return JournalChange.SHORTENED if shorter else JournalChange.CHANGED

    def close(self) -> None:
        """Release the file; closing twice is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _stored(self) -> bytes:
        """All bytes of the open file, wherever its name leads by now."""
        with open(self._fd, "rb", closefd=False) as file:
            file.seek(0)
            return file.read()

    def _state(self) -> tuple[int, int, int]:
        """What the system changes with the content: size, and the times of two kinds of change."""
        state = os.fstat(self._fd)
        return state.st_size, state.st_mtime_ns, state.st_ctime_ns
