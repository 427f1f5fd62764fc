"""The last selftest of each machine, in the user's cache, for `check` to quote."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from attnbench.records import Fingerprint
from attnbench.store import cache

KIND = "selftest"


def keep(machine: Fingerprint, result: Mapping[str, Any]) -> Path:
    """Write the result of a machine; returns the path. Raises `StoreError`."""
    return cache.keep(KIND, cache.digest(asdict(machine)), result)


def sentence(machine: Fingerprint) -> str:
    """The result of this machine's last selftest in words; empty if none can be read."""
    stored = cache.recall(KIND, cache.digest(asdict(machine)))
    return stored["sentence"] if stored else ""
