"""Files written whole or not at all and never through a link."""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from attnbench.errors import StoreError


def write(path: Path, content: bytes, *, way_out: str = "", stream: bool = False) -> None:
    """Replaces whatever has this name, even a link, by a file with this content.

    The folder may be reached through links, since the user chose it. With `stream`, for paths that
    users name, a device or pipe such as /dev/stdout gets the content directly. Raises `StoreError`
    with the system's reason and `way_out`; an older file is then unchanged.
    """
    with explained(f"cannot write {str(path)!r}", way_out):
        if stream and _is_stream(path):
            path.write_bytes(content)
        else:
            _replace(path, content)


@contextmanager
def explained(what: str, way_out: str = "") -> Iterator[None]:
    """Turns an error of the system into a `StoreError`: what failed, the reason, the way out."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        advice = f"; {way_out}" if way_out else ""
        raise StoreError(f"{what}: {reason}{advice}") from error


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
