"""Files that can be recomputed, in the user's cache folder: XDG_CACHE_HOME or ~/.cache."""

import json
import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from attnbench.errors import StoreError
from attnbench.records import canonical
from attnbench.store import output

MOST = 256  # entries of one kind, each of some kilobytes


def folder() -> Path:
    """The folder of this program's cache, which need not exist. The rule of XDG: absolute paths.

    Raises `StoreError` if the user has no home.
    """
    cache = os.environ.get("XDG_CACHE_HOME", "")
    try:
        return (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "attnbench"
    except RuntimeError as error:
        raise StoreError("there is no home folder; set XDG_CACHE_HOME or HOME") from error


def digest(data: Any) -> str:
    """A short name for data of JSON types."""
    return sha256(canonical(data).encode()).hexdigest()[:24]


def file_digest(file: Path) -> str:
    """A hash of a file's content. Raises `OSError`."""
    return sha256(file.read_bytes()).hexdigest()


def recall(kind: str, name: str) -> Any:
    """The data kept under this name; None if there is none, or if its file is damaged."""
    with suppress(OSError, ValueError, TypeError, KeyError, StoreError):
        stored = json.loads((folder() / kind / f"{name}.json").read_bytes())
        if stored["digest"] == digest(stored["data"]):
            return stored["data"]
    return None


def keep(kind: str, name: str, data: Any) -> Path:
    """Write data of JSON types and return the file. Raises `StoreError`."""
    text = json.dumps({"digest": digest(data), "data": data})
    output.fill(folder() / kind, {f"{name}.json": text.encode()})
    return folder() / kind / f"{name}.json"


def forget_oldest(kind: str, most: int = MOST) -> None:
    """Delete the entries of a kind that were written first, until `most` are left."""
    with suppress(OSError, StoreError):
        entries = sorted(os.scandir(folder() / kind), key=lambda file: file.stat().st_mtime)
        for entry in entries[: max(0, len(entries) - most)]:
            Path(entry).unlink(missing_ok=True)
