"""Files written whole or not at all and never through a link; whether a folder can be written."""

import os
import secrets
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from attnbench.errors import StoreError
from attnbench.store.journal import FILE

FIRST_BYTES = 16_384  # room for the first lines of a sweep


def write(path: Path, content: bytes, *, way_out: str = "", stream: bool = False) -> None:
    """Replaces whatever has this name, even a link, by a file with this content.

    The folder may be reached through links, since the user chose it. With `stream`, for paths that
    users name, a device or pipe such as /dev/stdout gets the content directly. Raises `StoreError`
    with the system's reason and `way_out`; an older file is then unchanged.
    """
    try:
        if stream and _is_stream(path):
            path.write_bytes(content)
        else:
            _replace(path, content)
    except (OSError, ValueError) as error:
        raise _refused(path, error, f"; {way_out}" if way_out else "") from error


def _replace(path: Path, content: bytes) -> None:
    # not named after the file, whose name may have the greatest possible length
    part = path.parent / f".attnbench-{secrets.token_hex(6)}.part"
    try:
        with open(part, "xb") as file:
            file.write(content)
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


def _is_stream(path: Path) -> bool:
    """Whether the path names a device, a pipe, or an open file of the process."""
    folder = os.path.realpath(path.parent)
    if folder in ("/dev", "/dev/fd") or folder.startswith("/proc/"):
        return True
    with suppress(OSError):
        return not stat.S_ISREG(path.stat().st_mode) and not path.is_dir()
    return False


def refuse_unwritable(folder: Path) -> None:
    """Raises `StoreError` with the system's reason unless a journal can be written there.

    Folders created to find out are removed again.
    """
    missing = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            written = file.write(bytes(FIRST_BYTES))
            if written < FIRST_BYTES:  # the error comes only with the next byte
                file.write(bytes(FIRST_BYTES - written))
            os.fsync(file.fileno())
        if (folder / FILE).exists():
            with open(folder / FILE, "ab"):
                pass
    except (OSError, ValueError) as error:
        way_out = "free some space there, or choose another folder with --out"
        raise _refused(folder, error, f"; {way_out}") from error
    finally:
        for path in missing:
            with suppress(OSError):
                path.rmdir()


def _refused(path: Path, error: Exception, advice: str) -> StoreError:
    reason = (getattr(error, "strerror", None) or str(error)).lower()
    return StoreError(f"cannot write {str(path)!r}: {reason}{advice}")
