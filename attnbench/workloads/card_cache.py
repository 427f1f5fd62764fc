"""What cards declare, cached between commands, so that listing mechanisms loads no torch.

The name of an entry is a digest of all that its content depends on: the source of this package, the
versions of Python and torch, the time of the last installation or removal of any package, the
device, and the mechanism. It holds the hashes of the user's files that it was read from. An entry
that is missing, damaged or of changed files is read again.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from attnbench.devices.protocol import Device
from attnbench.errors import StoreError
from attnbench.records.selection import mechanisms
from attnbench.store import cache
from attnbench.workloads.reading import Described

KIND = "models"

Row = Mapping[str, Any]


def cached_rows(
    names: Sequence[str], device: Device, read: Callable[[list[str]], Iterable[Described]]
) -> list[Row]:
    """Each mechanism in full; `read` is called once, with those that are not cached, if any."""
    entries = dict(zip(names, entry_names(names, device), strict=True))
    rows = {name: row for name in names if (row := cached_row(entries[name])) is not None}
    if missing := [name for name in names if name not in rows]:
        for name, found in zip(missing, read(missing), strict=True):
            rows[name] = found.row
            with suppress(StoreError):
                cache.keep(KIND, entries[name], {"row": found.row, "sources": found.sources})
        cache.forget_oldest(KIND)
    return [rows[name] for name in names]


def cached_row(entry: str) -> Row | None:
    """The cached row, if the files that it was read from are unchanged."""
    if (stored := cache.recall(KIND, entry)) is None:
        return None
    with suppress(OSError):
        if all(cache.file_digest(Path(f)) == was for f, was in stored["sources"].items()):
            row: Row = stored["row"]
            return row
    return None


def entry_names(names: Iterable[str], device: Device) -> list[str]:
    """The names of the entries of some mechanisms on a device."""
    package = Path(__file__).parents[1]
    here = [
        {str(f.relative_to(package)): cache.file_digest(f) for f in sorted(package.rglob("*.py"))},
        [sys.version, version("torch"), installations()],
        [device.name, device.title(), device.missing(), device.cannot_compile()],
    ]
    shared = cache.digest(here)
    return [cache.digest([shared, name, located(name)]) for name in names]


def located(name: str) -> str:
    """The absolute paths of mechanisms in files; empty for others."""
    paths = (one.rpartition(".py:")[0] for one in mechanisms(name))
    return ":".join(str(Path(f"{path}.py").resolve()) for path in paths if path)


def installations() -> dict[str, int]:
    """When each folder of installed packages last changed."""
    times = {}
    for folder in sys.path:
        with suppress(OSError):
            if "-packages" in folder:
                times[folder] = Path(folder).stat().st_mtime_ns
    return times
