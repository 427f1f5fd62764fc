"""Files that are written whole or not at all, and never through a link."""

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from attnbench.errors import StoreError


def write(path: Path, content: bytes, *, way_out: str = "", stream: bool = False) -> None:
    """Puts a file with this content in place of whatever had its name, a link included.

    The folder may be reached through links, for its user chose it. With `stream`, for a path that
    a user named, a device or pipe such as /dev/stdout takes the content as it is. Raises
    `StoreError` with the system's reason and `way_out`; an older file is then as it was.
    """
    try:
        if stream and _is_stream(path):
            path.write_bytes(content)
        else:
            _replace(path, content)
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        advice = f"; {way_out}" if way_out else ""
        raise StoreError(f"cannot write {str(path)!r}: {reason}{advice}") from error


def _replace(path: Path, content: bytes) -> None:
    # not named after the file, whose name may be as long as a name can be
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
    """Whether the path names a device, a pipe, or what the process has open."""
    folder = os.path.realpath(path.parent)
    if folder in ("/dev", "/dev/fd") or folder.startswith("/proc/"):
        return True
    with suppress(OSError):
        return not stat.S_ISREG(path.stat().st_mode) and not path.is_dir()
    return False
