"""Temporary folders; a later process removes what a killed one left behind.

A folder is in use while it is locked. The system releases the lock however the owner ends, and
unlike a process id it is never reused.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from attnbench.store.locked import lock

PREFIX = "attnbench-tmp-"
HIDDEN = ".attnbench-"


class Scratch:
    """A folder of this process, removed by `close`; creating one removes abandoned ones."""

    def __init__(self) -> None:
        for left in abandoned():
            shutil.rmtree(left, ignore_errors=True)
        hidden = Path(tempfile.mkdtemp(prefix=HIDDEN)).resolve()
        self._fd = os.open(hidden, os.O_RDONLY)
        with suppress(OSError):  # where there are no locks, nobody removes it
            lock(self._fd)
        # now it has its name: without a lock it would look abandoned
        self.folder = hidden.rename(hidden.with_name(PREFIX + hidden.name.removeprefix(HIDDEN)))

    def close(self) -> None:
        """Remove the folder; closing twice is harmless."""
        if self._fd >= 0:
            shutil.rmtree(self.folder, ignore_errors=True)
            os.close(self._fd)
            self._fd = -1


def abandoned() -> Iterator[Path]:
    """This user's scratch folders whose owner has ended."""
    for path in sorted(Path(tempfile.gettempdir()).resolve().glob(f"{PREFIX}*")):
        with suppress(OSError):  # it is locked, another user's, or gone meanwhile
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                lock(fd)
                if os.fstat(fd).st_uid == os.geteuid():
                    yield path
            finally:
                os.close(fd)
