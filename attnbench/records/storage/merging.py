"""Several journals of one sweep, as its shards wrote them, as one journal.

Lines keep their times, contents and order, one journal after the other. The result does not depend
on the order in which journals are given, nor on how often. Lines that cannot be read stay behind.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from attnbench.errors import DifferentSweep, StoreError
from attnbench.records import Part, Run, Sweep, canonical
from attnbench.records.storage import output, schema
from attnbench.records.storage.journal import FILE, Contents, load, load_results, read
from attnbench.records.storage.resuming import defining, differences, machine
from attnbench.records.storage.schema import JournalLine

KEPT_APART = (
    "only shards of one request, measured by one version of attnbench on one kind of machine, are"
    " one sweep"
)
REPORT_BOTH = "report both folders"


def merge(
    folders: Sequence[Path], out: Path, *, again: bool = False, way_out: str = REPORT_BOTH
) -> Sweep:
    """The sweep that the journals in the folders make, which is written to `out`.

    Its warnings are those of all journals. Raises `DifferentSweep` if they are not of one request,
    kind of machine, version of attnbench and code of each mechanism, or hold different runs of the
    same case and round, and `StoreError` if one cannot be read or written, none has cases, or `out`
    holds a sweep, unless it is merged `again`.

    folders: of the journals
    out:     the folder of the merged sweep
    again:   whether `out` may hold a sweep, which is replaced
    way_out: what the error advises where the journals are not of one sweep
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
    output.fill(out, {FILE: joined(pieces, out.name, way_out)}, then=then)
    warnings = dict.fromkeys(line for piece in pieces.values() for line in piece.sweep().warnings)
    return replace(load(out), warnings=tuple(warnings))


def joined(pieces: Mapping[str, Contents], name: str, way_out: str = REPORT_BOTH) -> bytes:
    """The journal of all pieces, a sweep of this name. Raises `DifferentSweep` with a way out."""
    places = sorted(pieces, key=lambda place: pieces[place].data)  # by when they began
    sweeps = {place: pieces[place].sweep() for place in places}
    _refuse_others(sweeps, way_out)
    _refuse_other_code(sweeps, way_out)
    ran: dict[tuple[str, Part, int], tuple[str, Run]] = {}
    for place, sweep in sweeps.items():
        for run in (run for run in sweep.runs if run.elapsed_s):
            before, earlier = ran.setdefault((run.case, run.part, run.round), (place, run))
            if earlier != run:
                raise DifferentSweep(
                    f"cannot merge {before!r} with {place!r}: each has a different run of a case"
                    f" ({run.part}, round {run.round + 1}); a shard is measured once: leave one out"
                )
    _, head, _ = pieces[places[0]].lines[0]
    kept = dict[tuple[str, ...], JournalLine]()
    for place in places:
        for _, entry, _ in pieces[place].lines[1:]:
            kept.setdefault(_key(entry), entry)
    head = replace(head, data={**head.data, "name": name})
    return b"".join(map(schema.seal, (head, *kept.values())))


def _refuse_others(pieces: Mapping[str, Sweep], way_out: str) -> None:
    """Raises `DifferentSweep` unless request, machine and version are the same."""
    (first, reference), *_ = pieces.items()
    for place, sweep in pieces.items():
        differing = differences(defining(reference.request), defining(sweep.request))
        if reference.shards and sweep.shards and reference.shards[0].of != sweep.shards[0].of:
            differing.append(f"shards: {reference.shards[0].of} there, {sweep.shards[0].of} here")
        sessions = [machine(session) for session in (*reference.sessions, *sweep.sessions)]
        for session in sessions[1:]:
            differing += differences(sessions[0], session)
        if differing:
            what = "; ".join(dict.fromkeys(differing))
            raise DifferentSweep(
                f"cannot merge {place!r} with {first!r} ({what}); {KEPT_APART}; {way_out}"
            )


def _refuse_other_code(pieces: Mapping[str, Sweep], way_out: str) -> None:
    """Raises `DifferentSweep` where two pieces measured different code under one name."""
    known = dict[str, tuple[str, str]]()
    for place, sweep in pieces.items():
        for card in (card for card in sweep.cards if card.code):
            before, code = known.setdefault(card.mechanism, (place, card.code))
            if code != card.code:
                raise DifferentSweep(
                    f"cannot merge {place!r} with {before!r}: the code of {card.mechanism} is not"
                    f" the same in both; measure all shards with one version of it, or {way_out}"
                )


def _key(entry: JournalLine) -> tuple[str, ...]:
    """What identifies the entry: its contents, and unless each journal has it, its time."""
    at = "" if entry.kind in ("card", "case") else entry.at
    return entry.kind, at, canonical(entry.data)
