"""Files written as a whole or not at all, and never through a symbolic link."""

import errno
import itertools
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType

from attnbench.errors import StoreError

JOURNAL = "sweep.jsonl"
ELSEWHERE = ", or choose another folder with --out"

# the way out of errors of the system that have one
ADVICE: Mapping[int | None, str] = MappingProxyType({
    errno.EACCES: "change its permissions", errno.EPERM: "change its permissions",
    errno.EROFS: "make that file system writable",
    errno.ENOSPC: "free some space there", errno.EDQUOT: "free some of your disk quota",
    errno.EFBIG: "raise the file size limit",
    errno.ENOTDIR: "move the file that is in the way",
    errno.EEXIST: "move the file that is in the way",
    errno.EISDIR: "name a file, not a folder",
    errno.ENOENT: "create its folder first",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ELOOP: "remove the symbolic link",
    errno.ENOLCK: "choose a file system that has locks",
})  # fmt: skip


def write(path: Path, content: bytes, *, then: str = "") -> None:
    """Makes a file with this content, or replaces the one of this name; a failure leaves that.

    Its folder may be a link, it may not. Raises `StoreError` as `writing` does.
    """
    with writing(path, then):
        part = _created(path)
        try:
            part.write_bytes(content)
            os.replace(part, path)
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise


def keep(path: Path, content: bytes) -> Path:
    """Makes a file with this content where none was; returns its path, numbered if need be.

    The first free one of `kept.jsonl`, `kept-2.jsonl`, … is taken, and never one that exists. The
    content is on the disk when this returns. Raises `OSError`, and leaves no part of a file.
    """
    for number in itertools.count(1):
        name = path.name if number == 1 else f"{path.stem}-{number}{path.suffix}"
        free = path.with_name(name)
        try:
            file = free.open("xb")
        except FileExistsError:
            continue
        try:
            with file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            with suppress(OSError):
                free.unlink()
            raise
        return free
    raise AssertionError("numbers do not end")


def fill(folder: Path, files: Mapping[str, bytes], *, then: str = "") -> None:
    """Creates the folder if necessary and replaces files in it, one after the other."""
    with writing(folder, then):
        folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write(folder / name, content, then=then)


def refuse_unwritable(*paths: Path | None) -> None:
    """Raises `StoreError` unless a new file can be written next to each of the named ones.

    Nor may one of them have the name of a journal: it would replace a sweep's.
    """
    for path in filter(None, paths):
        if path.name == JOURNAL:
            raise StoreError(f"{str(path)!r} is the name of a sweep's journal; choose another")
        with writing(path):
            _created(path).unlink()


def writing(path: str | Path, then: str = "") -> AbstractContextManager[None]:
    """Turns an error of the system into a `StoreError` with advice, which `then` continues."""
    return explained(f"cannot write {str(path)!r}", then=then)


@contextmanager
def explained(what: str, way_out: str = "", then: str = "") -> Iterator[None]:
    """Turns an error of the system into a `StoreError`: what failed, the reason, the way out."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        advice = way_out or ADVICE.get(getattr(error, "errno", None), "correct that")
        raise StoreError(f"{what}: {reason}; {advice}{then}") from error


def _created(path: Path) -> Path:
    """A new file in the same folder, not named after `path`, whose name may have maximum length.

    Raises `OSError` unless the path is free or a file: a link, pipe or device stays as it is.
    """
    with suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EEXIST, "it is not a regular file")
    part = path.parent / f".attnbench-{secrets.token_hex(6)}.part"
    part.open("xb").close()
    return part
