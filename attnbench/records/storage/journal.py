"""A sweep's folder: `sweep.jsonl`, an append-only journal that survives any interruption.

Of several lines about one case, one card, or one run (same case, part and round), the last counts,
but for one that says why a run that another one has was left out.
A line that cannot be read is set aside and reported in `Sweep.warnings`; it stays in the file.

Where others replace, delete or change the file while a sweep writes it, the sweep stops, and what
it measured is kept as `sweep-kept.jsonl`, which can be resumed as any journal can.
"""

import os
import shlex
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from attnbench.errors import StoreError, SweepBusy
from attnbench.records import CardFacts, Origin, Part, Planned, Request, Run, Shard, Sweep
from attnbench.records.storage import schema
from attnbench.records.storage.locked import JournalChange, LockedFile
from attnbench.records.storage.output import ELSEWHERE, JOURNAL, explained, keep, writing
from attnbench.records.storage.resuming import refuse_other
from attnbench.records.storage.schema import (
    End,
    EndReason,
    Head,
    JournalLine,
    Record,
    Start,
    case_id,
)
from attnbench.records.units import many
from attnbench.version import __version__

FILE = JOURNAL
KEPT = "sweep-kept.jsonl"  # what a sweep measured whose journal others took away
TORN = "the last line is torn: the run in flight was lost"
RESUME = " and --resume"  # once what prevents writing is mended


@dataclass
class Contents:
    """A journal: the lines that can be read, each with its number, and what was set aside."""

    data: bytes
    lines: list[tuple[int, JournalLine, Record]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    torn: bytes = b""  # the last line, if it has no end and cannot be read

    def sessions(self) -> list[Start]:
        """Starts and resumes, in order."""
        return [record for *_, record in self.lines if isinstance(record, Start)]

    def sweep(self) -> Sweep:
        """What has been read, as a whole."""
        _, first, head = self.lines[0]
        sessions = self.sessions()
        assert isinstance(head, Head), "a journal begins with it"
        cases = dict[str, Planned]()
        cards = dict[str, CardFacts]()
        request = head.request  # of the last session so far
        asked = dict[Origin, Request]()
        # how the last session of each shard ended; None if it did not
        ended: dict[Shard | None, EndReason | None] = {}
        for _, entry, record in self.lines:
            match record:
                case CardFacts():
                    cards[record.mechanism] = record
                case Planned(case=case):
                    # an earlier release may have named the same case by further fields
                    cases[str(entry.data.get("id"))] = cases[case_id(case.key)] = record
                case Start():
                    request = record.request
                    ended[record.shard] = None
                case Run(origin=origin) if origin == Origin():
                    asked[origin] = request
                case Run():
                    # merged, later ones may follow the start of another shard
                    asked.setdefault(record.origin, request)
                case End():
                    ended[record.shard] = record.outcome
        runs, unknown = self._runs(cases)
        shards = sorted(shard for shard in ended if shard is not None)
        # of shards all ended well, or the only one in its journal; else the whole sweep
        last = [ended[None]] if None in ended else [*ended.values()]
        whole = None in ended or len(shards) in {1, *(shard.of for shard in shards)}
        return Sweep(
            name=head.name,
            begun=first.at,
            request=request,
            sessions=tuple(session.environment for session in sessions),
            cards=tuple(cards.values()),
            plan=tuple({planned.case.key: planned for planned in cases.values()}.values()),
            runs=tuple(runs.values()),
            finished=whole and {*last} <= {EndReason.FINISHED, EndReason.BUDGET},
            warnings=(*self.warnings, *unknown),
            shards=tuple(shards),
            over_budget=EndReason.BUDGET in ended.values(),
            asked=asked,
        )

    def _runs(
        self, cases: dict[str, Planned]
    ) -> tuple[dict[tuple[str, Part, int], Run], list[str]]:
        """The last run of each case, part and round, and warnings of runs of unknown cases."""
        runs = dict[tuple[str, Part, int], Run]()
        unknown = list[str]()
        for number, _, run in self.lines:
            if not isinstance(run, Run):
                continue
            if run.case not in cases:
                unknown.append(f"line {number}: a run of an unknown case; set aside")
                continue
            key = cases[run.case].case.key, run.part, run.round
            if key in runs and not runs[key].elapsed_s:
                del runs[key]  # it had been left out, and ran only now
            if key not in runs or run.elapsed_s:
                runs[key] = replace(run, case=key[0])
        return runs, unknown


def load(path: str | os.PathLike[str]) -> Sweep:
    """The sweep in a folder or a journal file; writes nothing. Raises what `read` raises."""
    return read(path).sweep()


def read(path: str | os.PathLike[str]) -> Contents:
    """The lines of the journal in a folder, or of a journal file.

    Raises `StoreError` if there is none, its first line cannot be read, or another version wrote
    any of it.
    """
    path = Path(path)
    file = path / FILE if os.path.isdir(path) else path
    if not os.path.isfile(file):
        raise StoreError(f"no sweep in {str(file.parent if file.name == FILE else path)!r}")
    with explained(f"cannot read {str(file)!r}", "check its permissions"):
        data = file.read_bytes()
    return contents(data, repr(str(file)))


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


def begun(folder: Path) -> bool:
    """Whether a sweep began there; one stopped earlier leaves an empty journal."""
    file = folder / FILE
    return os.path.exists(file) and file.stat().st_size > 0


def contents(data: bytes, origin: str) -> Contents:
    """What a journal holds.

    Raises `StoreError` naming `origin` if the first line cannot be read, or any line has another
    schema.
    """
    journal = Contents(data)
    unended = data.count(b"\n") + 1
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line:
            continue
        try:
            entry = schema.unseal(line)
            record = schema.from_entry(entry)
            if isinstance(record, Head) == bool(journal.lines):
                raise ValueError(
                    "a second header" if journal.lines else "it does not begin a sweep"
                )
        except ValueError as error:
            if not journal.lines:
                raise StoreError(
                    f"the first line of {origin} cannot be read ({error}); restore the file from a"
                    " copy, or sweep into another folder with --out"
                ) from error
            journal.torn = line if number == unended else b""
            journal.warnings.append(TORN if journal.torn else f"line {number}: {error}; set aside")
        else:
            journal.lines.append((number, entry, record))
    if not journal.lines:
        raise StoreError(f"{origin} is empty: its sweep never began; repeat it")
    return journal


class Journal:
    """The only writer of a folder while it is open; a context manager.

    `sweep` is what the folder held when it was opened. An append is on the disk when it returns,
    or has left no trace. Runs are stored with their `origin`.

    Each append, the end and `close` raise `StoreError` if others replaced, deleted or changed the
    file meanwhile; by then all runs are in another file, which the message names.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        start: Start,
        refuse: Callable[[Sweep], None] = lambda sweep: None,
    ) -> None:
        """The sweep in `folder`, to go on, or a new one there, named after the folder.

        A torn last line is cut off. Raises `DifferentSweep` unless request, machine and shard are
        those of the sweep, `SweepBusy`, `StoreError` if it cannot be written, and what `load`
        raises; nothing is written then.

        folder: of the sweep.
        start: what begins now: the request, the machine, and which shard.
        refuse: called with the sweep that is there before anything is written; it may raise.
        """
        self.folder = Path(folder)
        self._closed = False
        with writing(self.folder, RESUME if begun(self.folder) else ELSEWHERE):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._file = _locked(self.folder)
            try:
                if not (data := self._file.content):
                    name = self.folder.name
                    request = start.request
                    data = _sealed(Head(name=name, attnbench=__version__, request=request))
                    self._file.append(data)
                stored = contents(data, repr(str(self.folder / FILE)))
                self.sweep: Sweep = stored.sweep()
                refuse_other(self.sweep, start)
                refuse(self.sweep)
                if stored.torn:
                    self._file.cut(len(data) - len(stored.torn))
                elif not data.endswith(b"\n"):
                    self._file.append(b"\n")
                here = start.environment
                attempt = len(stored.sessions()) + 1
                self.origin = Origin(
                    host=here.host, device_uuid=here.device_uuid, shard=start.shard, attempt=attempt
                )
                self._file.append(_sealed(start))
            except BaseException:
                self._file.close()
                raise

    def append(self, *records: CardFacts | Planned | Run) -> None:
        """Writes the records, all or none. Raises `StoreError` with the system's reason."""
        self._write(*(replace(r, origin=self.origin) if isinstance(r, Run) else r for r in records))

    def end(self, ending: EndReason) -> None:
        """Writes how the session ended. Raises what `append` raises."""
        self._write(End(outcome=ending, shard=self.origin.shard))

    def held(self) -> Sweep:
        """The sweep by what was written, whatever has become of the file meanwhile."""
        return contents(self._file.content, repr(str(self.folder / FILE))).sweep()

    def close(self) -> None:
        """Releases the folder; closing twice is harmless.

        Raises `StoreError` if the file at the path is not what was written, unless an append has.
        """
        if self._closed:
            return
        try:
            self._refuse_disturbed(thorough=True)
        finally:
            self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _write(self, *records: Record) -> None:
        data = _sealed(*records)
        self._refuse_disturbed(data)
        with writing(self.folder, RESUME):
            self._file.append(data)

    def _release(self) -> None:
        self._closed = True
        self._file.close()

    def _refuse_disturbed(self, new: bytes = b"", thorough: bool = False) -> None:
        """Keeps all runs elsewhere and raises `StoreError` if others took the file away.

        `new` is what was about to be appended; it is kept too.
        """
        with writing(self.folder, RESUME):
            disturbance = self._file.disturbance(thorough)
        if disturbance is not None:
            message = rescued(self.folder, disturbance, self._file.content + new)
            self._release()
            raise StoreError(message)


def rescued(folder: Path, disturbance: JournalChange, data: bytes) -> str:
    """Keeps a journal's content in another file; returns what happened, and the way out.

    The file lies in the folder, or beside it where that is gone, or else among temporary files.
    """
    what = f"{str(folder / FILE)!r} {disturbance} while a sweep wrote it"
    runs = [run for run in contents(data, "the journal").sweep().runs if run.elapsed_s]
    if not runs:
        return f"{what}; nothing was measured until then; sweep again{ELSEWHERE}"
    measured = f"what this sweep measured ({many(len(runs), 'run')})"
    beside = folder.parent / f"{folder.name}-{KEPT}"
    reasons = []
    for place in (folder / KEPT, beside, Path(tempfile.gettempdir()) / beside.name):
        try:
            kept = keep(place, data)
        except OSError as error:
            reasons.append(f"{str(place)!r}: {(error.strerror or str(error)).lower()}")
            continue
        commands = f"mkdir NEW && mv {shlex.quote(str(kept))} NEW/{FILE}"
        return (
            f"{what}; {measured} is kept in {str(kept)!r}; to go on in another folder:"
            f" {commands} && attnbench sweep --resume NEW"
        )
    return f"{what}; {measured} is lost, for nothing can be written: {'; '.join(reasons)}"


def _locked(folder: Path) -> LockedFile:
    """The journal's file. Raises `SweepBusy`, which names the process of the last session."""
    try:
        return LockedFile(folder / FILE)
    except BlockingIOError:
        holder = "another process"
        with suppress(OSError, StoreError, IndexError):
            holder = f"process {read(folder).sessions()[-1].pid}"
        raise SweepBusy(
            f"{str(folder)!r} is being written by {holder}; "
            "wait for it to end, or choose another folder with --out"
        ) from None


def _sealed(*records: Record) -> bytes:
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    return b"".join(schema.seal(schema.to_entry(record, at)) for record in records)
