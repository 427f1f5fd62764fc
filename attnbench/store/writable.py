"""Whether a sweep can be written into a folder, asked before anything is measured."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from attnbench.errors import StoreError
from attnbench.store.journal import FILE

FIRST_BYTES = 16_384  # room for the lines with which a sweep begins


def refuse_unwritable(folder: Path) -> None:
    """Raises `StoreError` with the system's reason unless a journal can be written there.

    Whatever has to be made to find out is removed again.
    """
    missing = [each for each in (folder, *folder.parents) if not os.path.lexists(each)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            written = file.write(bytes(FIRST_BYTES))
            if written < FIRST_BYTES:  # an error only comes with the next byte
                file.write(bytes(FIRST_BYTES - written))
            os.fsync(file.fileno())
        if (folder / FILE).exists():
            with open(folder / FILE, "ab"):
                pass
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        way_out = "free some space there, or choose another folder with --out"
        raise StoreError(f"cannot write {str(folder)!r}: {reason}; {way_out}") from error
    finally:
        for made in missing:
            with suppress(OSError):
                made.rmdir()
