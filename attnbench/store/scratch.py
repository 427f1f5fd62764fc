"""Temporary folders; a later process removes what a killed one left behind.

A folder is in use while the lock on its file `lock` is held. The system releases the lock however
the owner ends, and unlike a process id it is never reused.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from attnbench.store.locked import lock

PREFIX = "attnbench-scratch-"
HIDDEN = ".attnbench-"
LOCK = "lock"


class Scratch:
    """A folder of this process, removed by `close`; creating one removes abandoned ones."""

    def __init__(self) -> None:
        for left in abandoned():
            shutil.rmtree(left, ignore_errors=True)
        hidden, self._fd = locked_folder()
        self.folder = hidden.with_name(PREFIX + hidden.name.removeprefix(HIDDEN))
        hidden.rename(self.folder)

    def restore(self) -> None:
        """Create the folder anew if a mechanism has removed it, or its lock."""
        if not (self.folder / LOCK).exists():
            hidden, fd = locked_folder()
            os.close(self._fd)
            self._fd = fd
            shutil.rmtree(self.folder, ignore_errors=True)
            hidden.rename(self.folder)

    def close(self) -> None:
        """Remove the folder; closing twice is harmless."""
        if self._fd >= 0:
            shutil.rmtree(self.folder, ignore_errors=True)
            os.close(self._fd)
            self._fd = -1


def locked_folder() -> tuple[Path, int]:
    """A new folder and the descriptor of its lock.

    It is renamed only once it is locked: without a lock it would look abandoned.
    """
    hidden = Path(tempfile.mkdtemp(prefix=HIDDEN)).resolve()
    fd = os.open(hidden / LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    lock(fd)
    return hidden, fd


def abandoned(folder: Path | None = None) -> Iterator[Path]:
    """This user's scratch folders whose owner has ended."""
    for path in sorted((folder or Path(tempfile.gettempdir())).resolve().glob(f"{PREFIX}*")):
        if not path.is_symlink() and path.is_dir() and not is_held(path):
            yield path


def is_held(folder: Path) -> bool:
    """Whether the folder's owner is alive, or that is unknown."""
    try:
        if folder.stat().st_uid != os.geteuid():
            return True
        fd = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        return not lock(fd)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
