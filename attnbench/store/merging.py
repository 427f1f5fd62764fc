"""Several journals of one sweep, as its shards wrote them, as one journal.

Lines keep their times, contents and order, one journal after the other. The result does not depend
on the order in which journals are given, nor on how often. Lines that cannot be read stay behind.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from attnbench.errors import DifferentSweep, StoreError
from attnbench.records import Part, Sweep, canonical
from attnbench.store import output, reading, schema
from attnbench.store.journal import FILE, load, load_results
from attnbench.store.resuming import request_differences, shard_differences
from attnbench.store.schema import Entry

KEPT_APART = (
    "only shards of one request, measured by one version of attnbench on one kind of machine, are"
    " one sweep; report both folders"
)


@dataclass(frozen=True)
class Piece:
    """One journal to be merged: where it is, and what is in it."""

    path: Path
    content: bytes

    @classmethod
    def read(cls, folder: Path) -> "Piece":
        """The journal in a folder, or in a file. Raises what `load` raises."""
        load(folder)  # which says what is wrong with it
        return cls(folder, (folder / FILE if folder.is_dir() else folder).read_bytes())

    @cached_property
    def sweep(self) -> Sweep:
        """The journal as a sweep."""
        return reading.parse(self.content, repr(str(self.path)))

    @cached_property
    def entries(self) -> list[Entry]:
        """Every line that can be read, in order; the first one begins the sweep."""
        found = []
        for _, line in reading.lines(self.content):
            with suppress(ValueError):
                schema.from_entry(entry := schema.unseal(line))
                found.append(entry)
        return found


def merge(folders: Sequence[Path], out: Path, *, again: bool = False) -> Sweep:
    """The sweep that the journals in the folders make, which is written to `out`.

    Its warnings are those of all journals. Raises `DifferentSweep` if they are not of one request,
    kind of machine and version of attnbench, or hold different runs of the same case and round, and
    `StoreError` if one cannot be read or written, none has cases, or `out` holds a sweep, unless it
    is merged `again`.
    """
    if os.path.lexists(out / FILE) and not again:
        raise StoreError(
            f"{str(out)!r} already holds a sweep; choose another folder with --out, and name"
            " this one too if it is to be merged"
        )
    pieces = [Piece.read(folder) for folder in folders]
    if not any(piece.sweep.plan for piece in pieces):
        load_results(folders[0])  # which says that it has no cases
    then = f"{output.ELSEWHERE}; the merged journals are intact"
    output.fill(out, {FILE: joined(pieces, out.name)}, then=then)
    said = dict.fromkeys(line for piece in pieces for line in piece.sweep.warnings)
    return replace(load(out), warnings=tuple(said))


def joined(pieces: Sequence[Piece], name: str) -> bytes:
    """The journal of all pieces, a sweep of this name. Raises `DifferentSweep`."""
    pieces = sorted(pieces, key=lambda piece: (piece.entries[0].at, schema.digest(piece.content)))
    for other in pieces[1:]:
        _refuse_other(pieces[0], other)
    runs = _runs(pieces)
    first = pieces[0].entries[0]
    entries = {_key(first): replace(first, data={**first.data, "name": name})}
    for entry in (entry for piece in pieces for entry in piece.entries[1:]):
        if entry.kind != "run" or runs.get(_key(entry)) == entry:
            entries.setdefault(_key(entry), entry)
    return b"".join(map(schema.seal, entries.values()))


def _refuse_other(first: Piece, other: Piece) -> None:
    """Raises `DifferentSweep` unless request, machine and version are the same."""
    a, b = first.sweep, other.sweep
    differences = request_differences(a.request, b.request, divided=bool(a.shards or b.shards))
    if a.shards and b.shards and a.shards[0].of != b.shards[0].of:
        differences.append(f"shards: {a.shards[0].of} there, {b.shards[0].of} here")
    known = (*a.sessions, *b.sessions)
    for session in known[1:]:
        differences += shard_differences(known[0], session)
    if differences:
        what = "; ".join(dict.fromkeys(differences))
        here, there = (repr(str(piece.path)) for piece in (other, first))
        raise DifferentSweep(f"cannot merge {here} with {there} ({what}); {KEPT_APART}")


def _runs(pieces: Sequence[Piece]) -> dict[tuple[str, ...], Entry]:
    """The run that counts for each case, part and round: the last of its journal.

    What one shard left out and another measured was measured. Raises `DifferentSweep` at two runs.
    """
    counted: dict[tuple[str, ...], tuple[Piece, Entry]] = {}
    for piece in pieces:
        last = {_key(entry): entry for entry in piece.entries if entry.kind == "run"}
        for key, entry in last.items():
            earlier, known = counted.get(key, (piece, entry))
            if known.data["elapsed_s"] and entry.data["elapsed_s"] and known.data != entry.data:
                _refuse_doubled(key, earlier, piece)
            if key not in counted or not known.data["elapsed_s"]:
                counted[key] = piece, entry
    timed = {key[1] for key, (_, entry) in counted.items() if entry.data["samples"]}
    return {
        key: entry
        for key, (_, entry) in counted.items()
        if entry.data["elapsed_s"] or key[2] != Part.TIME or key[1] not in timed
    }


def _refuse_doubled(key: tuple[str, ...], *pieces: Piece) -> None:
    _, id_, part, round_ = key
    plan = pieces[0].sweep.plan
    labels = (str(line.case) for line in plan if schema.case_id(line.case.key) == id_)
    raise DifferentSweep(
        f"cannot merge {' with '.join(repr(str(piece.path)) for piece in pieces)}: each has a"
        f" different run of {next(labels, id_)} ({part}, round {int(round_) + 1}); a shard is"
        " measured once, so leave one out"
    )


def _key(entry: Entry) -> tuple[str, ...]:
    """What identifies the entry among all; sessions and their ends are all kept."""
    match entry.kind:
        case "card":
            return "card", entry.data["mechanism"]
        case "case":
            return "case", entry.data["id"]
        case "run":
            return "run", *(str(entry.data[name]) for name in ("case", "part", "round"))
    return entry.kind, entry.at, canonical(entry.data)
