"""A sweep's folder: `sweep.jsonl`, an append-only journal that survives any interruption.

Of several lines about one case, one card, or one run (same case, part and round), the last counts.
A line that cannot be read is set aside and reported in `Sweep.warnings`; it stays in the file.
"""

import os
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from attnbench import units
from attnbench.errors import StoreError, SweepBusy
from attnbench.records import CardFacts, Origin, Planned, Run, Sweep
from attnbench.store import reading, schema
from attnbench.store.locked import LockedFile, opened, sync_folder
from attnbench.store.output import ELSEWHERE, JOURNAL, explained, writing
from attnbench.store.resuming import refuse_other
from attnbench.store.schema import End, EndReason, Head, Record, Start
from attnbench.version import __version__

FILE = JOURNAL
TORN = f"{FILE}.torn"
RESUME = " and --resume"  # once what prevents writing is mended


def load(path: str | os.PathLike[str]) -> Sweep:
    """The sweep in a folder or a journal file; writes nothing.

    Raises `StoreError` if there is none or it cannot be read, `DamagedJournal` if its first line
    cannot be read, `OtherSchema` if another version wrote any of it.
    """
    path = Path(path)
    file = path / FILE if os.path.isdir(path) else path
    if not os.path.isfile(file):
        raise StoreError(_missing(file.parent if file.name == FILE else path))
    with explained(f"cannot read {str(file)!r}", "check its permissions"):
        data = file.read_bytes()
    return reading.parse(data, repr(str(file)))


def load_results(path: str | os.PathLike[str]) -> Sweep:
    """The sweep as `load` gives it, with at least one case.

    Raises `StoreError` if it has none, and what `load` raises.
    """
    sweep = load(path)
    if not sweep.plan:
        raise StoreError(
            f"the sweep in {str(path)!r} has no cases: it stopped before its plan was written, or"
            " those lines are damaged; repeat it with --resume and the same options"
        )
    return sweep


def list_sweeps(root: str | os.PathLike[str]) -> tuple[str, ...]:
    """Names of the folders in `root` that hold a journal, sorted; none if it cannot be read."""
    try:
        files = (file for file in Path(root).glob(f"*/{FILE}") if file.is_file())
        return tuple(sorted(file.parent.name for file in files))
    except (OSError, ValueError):
        return ()


class Journal:
    """The only writer of a folder while it is open; a context manager.

    `sweep` is what the folder held when it was opened. An append is on the disk when it returns,
    or has left no trace. Runs are stored with their `origin`.
    """

    def __init__(self, folder: str | os.PathLike[str], start: Start, *, name: str = "") -> None:
        """The sweep in `folder`, to go on, or a new one there, named after the folder.

        A torn last line is moved to `sweep.jsonl.torn`. Raises `DifferentSweep` unless request,
        machine and shard are those of the sweep, `SweepBusy`, `StoreError` if it cannot be written,
        and what `load` raises.
        """
        self.folder = Path(folder)
        with writing(self.folder, RESUME if begun(self.folder) else ELSEWHERE):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._file = _locked(self.folder)
            try:
                if not (data := self._file.content):
                    name = name or self.folder.name
                    data = _sealed(Head(name=name, attnbench=__version__, request=start.request))
                    self._file.append(data)
                    sync_folder(self.folder)
                found = reading.contents(data, repr(str(self.folder / FILE)))
                self.sweep: Sweep = found.sweep()
                refuse_other(self.sweep, start)
                self._repair(data, found.torn)
                here, attempt = start.environment, len(found.sessions) + 1
                self.origin = Origin(
                    host=here.host, device_uuid=here.device_uuid, shard=start.shard, attempt=attempt
                )
                self._file.append(_sealed(start))
            except BaseException:
                self.close()
                raise

    def append(self, *records: CardFacts | Planned | Run) -> None:
        """Writes the records, all or none. Raises `StoreError` with the system's reason."""
        self._write(*(replace(r, origin=self.origin) if isinstance(r, Run) else r for r in records))

    def end(self, ending: EndReason) -> None:
        """Writes how the session ended. Raises what `append` raises."""
        self._write(End(outcome=ending, shard=self.origin.shard))

    def close(self) -> None:
        """Releases the folder; closing twice is harmless."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _write(self, *records: Record) -> None:
        with writing(self.folder, RESUME):
            self._file.append(_sealed(*records))

    def _repair(self, data: bytes, torn: bytes) -> None:
        """Makes the journal end in a newline, moving a torn last line to another file."""
        if torn:
            with open(opened(self.folder / TORN), "ab") as aside:
                aside.write(torn + b"\n")
            self._file.cut(len(data) - len(torn))
        elif not data.endswith(b"\n"):
            self._file.append(b"\n")


def begun(folder: Path) -> bool:
    """Whether a sweep began there; one stopped earlier leaves an empty journal."""
    file = folder / FILE
    return os.path.exists(file) and file.stat().st_size > 0


def _locked(folder: Path) -> LockedFile:
    """The journal's file. Raises `SweepBusy`."""
    try:
        return LockedFile(folder / FILE)
    except BlockingIOError:
        raise SweepBusy(
            f"{str(folder)!r} is being written by {_holder(folder)}; "
            "wait for it to end, or choose another folder with --out"
        ) from None


def _sealed(*records: Record) -> bytes:
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    return b"".join(schema.seal(schema.to_entry(record, at)) for record in records)


def _holder(folder: Path) -> str:
    """The process of the last session, which holds the lock."""
    with suppress(OSError, StoreError, IndexError):
        found = reading.contents((folder / FILE).read_bytes(), "")
        return f"process {found.sessions[-1].pid}"
    return "another process"


def _missing(folder: Path) -> str:
    root = folder if (within := list_sweeps(folder)) else folder.parent
    others = units.few(map(repr, within or list_sweeps(root))) or "none yet"
    return f"no sweep in {str(folder)!r}; sweeps in {str(root)!r}: {others}"
