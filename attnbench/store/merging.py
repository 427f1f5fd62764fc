"""Several journals of one sweep, as its shards wrote them, as one journal.

Lines keep their times and contents and are only numbered again, in the order in which they were
written; each journal's own order is kept even where the clocks of machines differ. The result does
not depend on the order of the journals, nor on how often one of them is given. Damaged lines
stay in it, so that a report says what was lost; a torn last line does not.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType

from attnbench.errors import DifferentSweep, StoreError
from attnbench.records import Outcome, Part, Sweep, canonical
from attnbench.store import output, reading, schema
from attnbench.store.journal import FILE, load, load_results
from attnbench.store.resuming import OTHER_DIVISION, request_differences, shard_differences
from attnbench.store.schema import Entry

KEPT_APART = (
    "only shards of one request, measured by one version of attnbench on one kind of machine, are"
    " one sweep; report both folders"
)

# what identifies a record among those of its kind; of others all distinct ones are kept
NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"card": ("mechanism",), "case": ("id",), "run": ("case", "part", "round")}
)


@dataclass(frozen=True)
class Piece:
    """One journal to be merged: where it is, and what is in it."""

    path: Path
    content: bytes

    @cached_property
    def sweep(self) -> Sweep:
        """The journal as a sweep."""
        return reading.parse(self.content, repr(str(self.path)))

    @cached_property
    def lines(self) -> list[tuple[bytes, Entry | None]]:
        """Every line, in order, with its entry if it can be read."""
        return [(line, _entry(line)) for _, line in reading.lines(self.content)]

    @property
    def entries(self) -> list[Entry]:
        """Every line that can be read, in order; the first one begins the sweep."""
        return [entry for _, entry in self.lines if entry]

    @property
    def damaged(self) -> set[bytes]:
        """The whole lines that cannot be read."""
        torn = self.content.rpartition(b"\n")[2]
        return {line for line, entry in self.lines if not entry} - {torn}


def merge(folders: Sequence[Path], out: Path) -> Sweep:
    """Joins the journals of the folders, and the one that `out` may hold already, in `out`.

    Raises `DifferentSweep` if they are not of one request, kind of machine and version of
    attnbench, or hold different runs of the same case and round, and `StoreError` if one cannot
    be read or written, none has cases, or `out` is one of them.
    """
    pieces = [Piece(folder, _content(folder)) for folder in folders]
    if os.path.exists(out / FILE):
        if any(os.path.samefile(_file(folder), out / FILE) for folder in folders):
            raise StoreError(
                f"{str(out)!r} is one of the folders to merge, and keeps its own journal; choose"
                " another folder with --out"
            )
        pieces.append(Piece(out, _content(out)))
    if not any(piece.sweep.plan for piece in pieces):
        load_results(folders[0])  # which says that it has no cases
    then = f"{output.ELSEWHERE}; the merged journals are intact"
    output.fill(out, {FILE: joined(pieces, out.name)}, then=then)
    return load(out)


def joined(pieces: Sequence[Piece], name: str) -> bytes:
    """The journal of all pieces, a sweep of this name. Raises `DifferentSweep`."""
    pieces = sorted(pieces, key=lambda piece: (piece.entries[0].at, schema.digest(piece.content)))
    for other in pieces[1:]:
        _refuse_other(pieces[0], other)
    runs = _runs(pieces)
    first = pieces[0].entries[0]
    entries = [replace(first, data={**first.data, "name": name})]
    seen: set[tuple[str, ...]] = set()
    for entry in _in_order(pieces):
        key = _key(entry)
        if key not in seen and (entry.kind != "run" or runs.get(key) == entry):
            seen.add(key)
            entries.append(entry)
    numbered = (replace(entry, line=line) for line, entry in enumerate(entries, 1))
    damaged = sorted(set().union(*(piece.damaged for piece in pieces)))
    return b"".join([*map(schema.seal, numbered), *(line + b"\n" for line in damaged)])


def _content(folder: Path) -> bytes:
    load(folder)  # which says what is wrong with it
    return _file(folder).read_bytes()


def _file(folder: Path) -> Path:
    return folder / FILE if folder.is_dir() else folder


def _entry(line: bytes) -> Entry | None:
    with suppress(ValueError):
        entry = schema.unseal(line)
        schema.from_entry(entry)
        return replace(entry, line=0)
    return None


def _refuse_other(first: Piece, other: Piece) -> None:
    """Raises `DifferentSweep` unless request, division, machine and version are the same."""
    a, b = first.sweep, other.sweep
    differences = request_differences(a.request, b.request, divided=bool(a.shards or b.shards))
    if a.shards and b.shards and a.shards[0].of != b.shards[0].of:
        differences.append(f"shards: {a.shards[0].of} there, {b.shards[0].of} here")
    elif len(a.divisions | b.divisions) > 1:
        differences.append(OTHER_DIVISION)
    known = (*a.sessions, *b.sessions)
    for session in known[1:]:
        differences += shard_differences(known[0], session)
    if differences:
        what = "; ".join(dict.fromkeys(differences))
        here, there = (repr(str(piece.path)) for piece in (other, first))
        raise DifferentSweep(f"cannot merge {here} with {there} ({what}); {KEPT_APART}")


def _runs(pieces: Sequence[Piece]) -> dict[tuple[str, ...], Entry]:
    """The run that counts for each case, part and round.

    What one journal has replaced counts in none: another may hold a copy from before. A case that
    one shard left out and another measured was measured. Raises `DifferentSweep` at two runs.
    """
    last: dict[tuple[str, ...], dict[str, tuple[Piece, Entry]]] = {}
    replaced: set[str] = set()
    for piece in pieces:
        own: dict[tuple[str, ...], list[Entry]] = {}
        for entry in piece.entries:
            if entry.kind == "run":
                own.setdefault(_key(entry), []).append(entry)
        for key, versions in own.items():
            texts = [canonical(entry.data) for entry in versions]
            replaced |= set(texts) - {texts[-1]}
            last.setdefault(key, {}).setdefault(texts[-1], (piece, versions[-1]))
    counted: dict[tuple[str, ...], Entry] = {}
    for key, versions_of in last.items():
        found = [place for text, place in versions_of.items() if text not in replaced]
        if len(found) != 1:
            _refuse_doubled(key, [piece for piece, _ in found or versions_of.values()])
        counted[key] = found[0][1]
    timed = {key[1] for key, entry in counted.items() if _is_time(entry, Outcome.OK)}
    return {
        key: entry
        for key, entry in counted.items()
        if not (_is_time(entry, Outcome.SKIPPED) and key[1] in timed)
    }


def _refuse_doubled(key: tuple[str, ...], pieces: Sequence[Piece]) -> None:
    _, id_, part, round_ = key
    plan = pieces[0].sweep.plan
    labels = (str(line.case) for line in plan if schema.case_id(line.case.key) == id_)
    raise DifferentSweep(
        f"cannot merge {' with '.join(repr(str(piece.path)) for piece in pieces)}: each has a"
        f" different run of {next(labels, id_)} ({part}, round {int(round_) + 1}); a shard is"
        " measured once, so leave one out"
    )


def _is_time(entry: Entry, outcome: Outcome) -> bool:
    return (entry.data["part"], entry.data["outcome"]) == (Part.TIME, outcome)


def _in_order(pieces: Sequence[Piece]) -> Iterator[Entry]:
    """Cards and cases as planned, then everything else by time."""
    rest: list[tuple[str, int, Entry]] = []
    for number, piece in enumerate(pieces):
        # a clock that was set back must not put a session behind its runs
        times = accumulate((entry.at for entry in piece.entries), max)
        for at, entry in zip(times, piece.entries, strict=True):
            if entry.kind in ("card", "case"):
                yield entry
            elif entry.kind != "sweep":
                rest.append((at, number, entry))
    yield from (entry for *_, entry in sorted(rest, key=lambda row: row[:2]))


def _key(entry: Entry) -> tuple[str, ...]:
    """What identifies the entry among all."""
    names = NAMES.get(entry.kind)
    if names is None:
        return entry.kind, entry.at, canonical(entry.data)
    return entry.kind, *(str(entry.data[name]) for name in names)
