"""The last selftest of each machine, in the user's cache, for `check` to quote."""

import json
import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from attnbench.errors import StoreError
from attnbench.records import canonical
from attnbench.store import output

SCHEMA = 1


def place(fingerprint: Mapping[str, Any]) -> Path:
    """The file of a machine, under XDG_CACHE_HOME or ~/.cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    digest = sha256(canonical(fingerprint).encode()).hexdigest()[:16]
    return Path(cache) / "attnbench" / f"selftest-{digest}.json"


def keep(fingerprint: Mapping[str, Any], result: Mapping[str, Any]) -> Path:
    """Write the result of this machine. Raises `StoreError`."""
    path = place(fingerprint)
    text = json.dumps({**result, "schema": SCHEMA, "machine": fingerprint}, indent=1)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write {str(path)!r}: {error.strerror}") from error
    output.write(path, f"{text}\n".encode())
    return path


def recall(fingerprint: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The result of this machine, or None if there is none that can be read."""
    try:
        found = json.loads(place(fingerprint).read_text())
    except (OSError, ValueError):
        return None
    well = isinstance(found, dict) and found.get("schema") == SCHEMA
    return found if well and isinstance(found.get("sentence"), str) else None
