"""Temporary folders that no command leaves behind for good, however it ends.

A command that is killed cannot remove its folder, so the next one does. A folder is in use for as
long as its maker holds a lock on it, and the system releases that when the maker ends, however it
ends. What the maker starts does not inherit the lock: once the maker is gone, nobody needs the
folder.
"""

import errno
import hashlib
import os
import platform
import re
import shutil
import tempfile
import weakref
from contextlib import AbstractContextManager, suppress
from pathlib import Path

# earlier releases lock nothing, and their folders, which may be in use, begin with `attnbench-`
PREFIX = "attnbench_temporary_"


class TemporaryFolder(AbstractContextManager[Path]):
    """A new folder for temporary files, removed with all that it holds when it is closed.

    Folders that killed commands left are removed first, unless it lies `within` a folder that is
    temporary itself. As a context manager it is its path.
    """

    def __init__(self, within: Path | None = None) -> None:
        """Raises `OSError` if no folder can be made."""
        if within is None:
            remove_left()
        self._folder = tempfile.TemporaryDirectory(
            prefix=prefix(), dir=within, ignore_cleanup_errors=True
        )
        self._lock: weakref.finalize[..., TemporaryFolder] | None = None
        self.path = Path(self._folder.name).resolve()
        self.hold()

    def hold(self) -> None:
        """Lock the folder, after making it again if something has removed it.

        On a file system without locks it stays without one, and no command removes it.
        """
        self._release()
        while self._lock is None:
            with suppress(FileExistsError):
                self.path.mkdir(mode=0o700)
            try:
                descriptor = locked(self.path, waits=True)
            except FileNotFoundError:
                continue  # another command took it for left
            except OSError:
                return
            if descriptor is not None:
                self._lock = weakref.finalize(self, os.close, descriptor)

    def close(self) -> None:
        """Remove the folder; closing twice is harmless."""
        self._folder.cleanup()
        self._release()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *error: object) -> None:
        self.close()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock()
        self._lock = None


def remove_left() -> None:
    """Remove the temporary folders of commands of this user, on this machine, that have ended."""
    ours = re.compile(re.escape(prefix()) + "[a-z0-9_]{8}")  # as `tempfile` draws them
    above = tempfile.gettempdir()
    with suppress(OSError):
        for name in os.listdir(above):
            if ours.fullmatch(name):
                with suppress(OSError):
                    remove_if_left(Path(above, name))


def remove_if_left(folder: Path) -> None:
    """Remove a folder if it is this user's and nobody holds its lock. Raises `OSError`."""
    descriptor = locked(folder)
    if descriptor is None:
        return
    try:
        if os.fstat(descriptor).st_uid == os.getuid():
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)


def locked(folder: Path, waits: bool = False) -> int | None:
    """A descriptor that holds the lock of the folder that is at this path once it is locked.

    None if it was removed or replaced meanwhile: then the lock is of a folder without a name.
    Raises `BlockingIOError` if another process has the lock, unless this one `waits` for it, and
    `OSError` where there is no folder, or only a link to one, or no lock.
    """
    try:
        import fcntl
    except ImportError as error:  # on Windows
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK)) from error
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        with suppress(FileNotFoundError, NotADirectoryError):
            if os.path.samestat(os.fstat(descriptor), os.lstat(folder)):
                return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def prefix() -> str:
    """What the names of this machine's temporary folders begin with.

    Machines may share a file system, but not its locks.
    """
    machine = hashlib.sha256(platform.node().encode()).hexdigest()[:8]
    return f"{PREFIX}{machine}_"
