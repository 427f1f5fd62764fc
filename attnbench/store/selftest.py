"""The last selftest of each machine, in the user's cache, for `check` to quote."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from attnbench.records import Fingerprint
from attnbench.store import cache, output

SCHEMA = 1


def cache_path(machine: Fingerprint) -> Path:
    """The file of a machine in the user's cache."""
    return cache.folder() / f"selftest-{cache.digest(asdict(machine))[:16]}.json"


def keep(machine: Fingerprint, result: Mapping[str, Any]) -> Path:
    """Write the result of a machine; returns the path. Raises `StoreError`."""
    path = cache_path(machine)
    text = json.dumps({**result, "schema": SCHEMA, "machine": asdict(machine)}, indent=1)
    with output.writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    output.write(path, f"{text}\n".encode())
    return path


def sentence(machine: Fingerprint) -> str:
    """The result of this machine's last selftest in words; empty if none can be read."""
    try:
        stored = json.loads(cache_path(machine).read_text())
    except (OSError, ValueError):
        return ""
    readable = isinstance(stored, dict) and stored.get("schema") == SCHEMA
    text = stored.get("sentence") if readable else None
    return text if isinstance(text, str) else ""
