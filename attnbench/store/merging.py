"""Several journals of one sweep, as its shards wrote them, as one journal.

Lines keep their times, contents and order, one journal after the other. The result does not depend
on the order in which journals are given, nor on how often. Lines that cannot be read stay behind.
"""

import os
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path

from attnbench.errors import DifferentSweep, StoreError
from attnbench.records import Part, Sweep, canonical
from attnbench.store import output, schema
from attnbench.store.journal import FILE, Contents, load, load_results, read
from attnbench.store.resuming import asked, differences, machine
from attnbench.store.schema import Entry

KEPT_APART = (
    "only shards of one request, measured by one version of attnbench on one kind of machine, are"
    " one sweep; report both folders"
)


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
    pieces = {str(folder): read(folder) for folder in folders}
    if not any(piece.sweep().plan for piece in pieces.values()):
        load_results(folders[0])  # which says that it has no cases
    then = f"{output.ELSEWHERE}; the merged journals are intact"
    output.fill(out, {FILE: joined(pieces, out.name)}, then=then)
    said = dict.fromkeys(line for piece in pieces.values() for line in piece.sweep().warnings)
    return replace(load(out), warnings=tuple(said))


def joined(pieces: Mapping[str, Contents], name: str) -> bytes:
    """The journal of all pieces, a sweep of this name. Raises `DifferentSweep`."""
    first, *others = sorted(pieces, key=lambda place: pieces[place].data)  # by when they began
    _refuse_others({place: pieces[place].sweep() for place in (first, *others)})
    found: dict[tuple[str, ...], tuple[str, Entry]] = {}
    for place in (first, *others):
        last = {_key(entry): entry for _, entry, _ in pieces[place].lines[1:]}
        for key, entry in last.items():
            before, known = found.get(key, (place, entry))
            if entry.kind == "run" and entry.data["elapsed_s"]:
                if known.data["elapsed_s"] and known.data != entry.data:
                    part, number = entry.data["part"], entry.data["round"] + 1
                    raise DifferentSweep(
                        f"cannot merge {before!r} with {place!r}: each has a different run of a"
                        f" case ({part}, round {number}); a shard is measured once: leave one out"
                    )
                if not known.data["elapsed_s"]:  # what another left out
                    del found[key]
            found.setdefault(key, (place, entry))
    entries = [entry for _, entry in found.values()]
    timed = {e.data["case"] for e in entries if e.kind == "run" and e.data["samples"]}
    head = pieces[first].lines[0][1]
    kept = [replace(head, data={**head.data, "name": name})]
    kept += [entry for entry in entries if not _is_left_out(entry, timed)]
    return b"".join(map(schema.seal, kept))


def _is_left_out(entry: Entry, timed: Set[str]) -> bool:
    """Whether it only says why one left out a case whose other rounds another one timed."""
    run = entry.data
    never = entry.kind == "run" and run["part"] == Part.TIME and not run["elapsed_s"]
    return never and run["case"] in timed


def _refuse_others(pieces: Mapping[str, Sweep]) -> None:
    """Raises `DifferentSweep` unless request, machine and version are the same."""
    divided = any(sweep.shards for sweep in pieces.values())
    (first, known), *_ = pieces.items()
    for place, sweep in pieces.items():
        found = differences(asked(known.request, divided), asked(sweep.request, divided))
        if known.shards and sweep.shards and known.shards[0].of != sweep.shards[0].of:
            found.append(f"shards: {known.shards[0].of} there, {sweep.shards[0].of} here")
        sessions = [machine(session) for session in (*known.sessions, *sweep.sessions)]
        for session in sessions[1:]:
            found += differences(sessions[0], session)
        if found:
            what = "; ".join(dict.fromkeys(found))
            raise DifferentSweep(f"cannot merge {place!r} with {first!r} ({what}); {KEPT_APART}")


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
