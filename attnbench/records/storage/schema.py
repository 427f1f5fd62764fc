"""A line of a journal: one record with its kind, line number, time and checksum.

    {"schema":5,"kind":"run","at":"2025-01-31T12:00:00.000+00:00","data":{…},"sha256":"16 digits"}

The checksum covers every byte before it, so that a line is verified before it is parsed. A line is
ASCII: other letters are escaped, and no text in a record can end a line. A run refers to its case
by a short id.

Only journals of the current `SCHEMA` are read. A checksum shows that a line is unchanged, not that
it makes sense: `read_run` and the types and bounds of `records` say what a line may hold.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from hashlib import sha256
from types import MappingProxyType
from typing import Any

import msgspec

from attnbench.errors import StoreError
from attnbench.records import COUNTABLE, CardFacts, Count, Environment, Planned, Request, Run, Shard
from attnbench.records.metrics import TABLE, Unit
from attnbench.version import __version__

SCHEMA = 5

# how many times as long as its run a sample may seem to take, by another process's clock; not their
# sum: a case in several races has the samples of all of them, and the time of the first
CLOCKS = 2.0

SEALED = re.compile(rb'(\{"schema":(\d{1,9}),"kind":".*),"sha256":"([0-9a-f]{16})"\}', re.DOTALL)


class EndReason(StrEnum):
    """Why a session of a sweep ended."""

    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    BUDGET = "budget"


@dataclass(frozen=True, kw_only=True)
class Head:
    """The first line: which sweep this is, and what was requested when it began."""

    name: str
    attnbench: str
    request: Request


@dataclass(frozen=True)
class Start:
    """A start or a resume: machine, process, and what was requested this time."""

    request: Request
    environment: Environment
    shard: Shard | None = None
    pid: Count = field(default_factory=os.getpid)


@dataclass(frozen=True, kw_only=True)
class End:
    """The last line of a session."""

    outcome: EndReason
    shard: Shard | None = None


Record = Head | Start | CardFacts | Planned | Run | End

KINDS: Mapping[str, type[Record]] = MappingProxyType(
    {"sweep": Head, "session": Start, "card": CardFacts, "case": Planned, "run": Run, "end": End}
)


@dataclass(frozen=True)
class JournalLine:
    """A line before it becomes a record. `at` is UTC, ISO 8601."""

    kind: str
    at: str
    data: Mapping[str, Any]


def digest(content: bytes) -> str:
    """16 hexadecimal digits that identify the content."""
    return sha256(content).hexdigest()[:16]


def case_id(key: str) -> str:
    """The short name of a case's key within a journal."""
    return digest(key.encode("utf-8", "surrogatepass"))


def seal(entry: JournalLine, version: int = SCHEMA) -> bytes:
    """The line of an entry, ending in a newline."""
    data = json.dumps(entry.data, sort_keys=True, separators=(",", ":"))
    kind = json.dumps(entry.kind)
    at = json.dumps(entry.at)
    line = f'{{"schema":{version},"kind":{kind},"at":{at},"data":{data}'.encode("ascii")
    return line + f',"sha256":"{digest(line)}"}}\n'.encode("ascii")


def unseal(line: bytes) -> JournalLine:
    """The entry of a line.

    Raises `ValueError` that says what is wrong with the line, `StoreError` if only another version
    of attnbench reads it.
    """
    sealed = SEALED.fullmatch(line.strip())
    if not sealed:
        raise ValueError("not a whole line of a journal")
    body, written, checksum = sealed.groups()
    if digest(body) != checksum.decode("ascii"):
        raise ValueError("checksum does not match")
    try:
        entry = msgspec.convert(json.loads(body + b"}"), JournalLine)
    except (ValueError, RecursionError) as error:
        raise ValueError("not a line that attnbench wrote") from error
    if int(written) != SCHEMA:
        by = entry.data.get("attnbench", "another version")
        raise StoreError(
            f"the journal has schema {written.decode()}: attnbench {by} wrote it and reads it; this"
            f" one, {__version__}, reads schema {SCHEMA} alone"
        )
    return entry


def to_entry(record: Record, at: str) -> JournalLine:
    """The entry of a record."""
    data = asdict(record)
    match record:
        case Planned(case=case):
            data["id"] = case_id(case.key)
        case Run(case=key):
            data["case"] = case_id(key)
    kind = next(kind for kind, type_ in KINDS.items() if isinstance(record, type_))
    return JournalLine(kind, at, data)


def from_entry(entry: JournalLine) -> Record:
    """The record in an entry; a run has the id of its case in place of the key.

    Raises `ValueError` that names the field if the kind is unknown, or data has wrong types or is
    out of bounds.
    """
    if entry.kind not in KINDS:
        raise ValueError(f"unknown kind {entry.kind!r}")
    try:
        if entry.kind == "run":
            return read_run(entry.data)
        return msgspec.convert(entry.data, KINDS[entry.kind])
    except ValueError as error:
        reason = f"{str(error)[:1].lower()}{str(error)[1:]}"
        raise ValueError(f"not a line of kind {entry.kind}: {reason}") from error


def read_run(data: Mapping[str, Any]) -> Run:
    """A run from plain data: of a line, or of what a process answered.

    Values that `metrics` does not list are dropped: a metric may come or go without another schema.
    Raises `ValueError` that names what no run can have measured: a wrong type, a number out of its
    bounds or against its unit, or samples that take longer than the whole run.
    """
    run = msgspec.convert(data, Run)
    values = {name: value for name, value in run.values.items() if name in TABLE}
    for name, value in values.items():
        row = TABLE[name]
        if value < 0 and not row.signed:
            raise ValueError(f"`$.values.{name}` is below 0")
        if row.unit in (Unit.BYTES, Unit.COUNT) and abs(value) > COUNTABLE:
            raise ValueError(f"`$.values.{name}` is beyond any machine")
        if (row.unit is Unit.BYTES or row.tolerance is not None) and value % 1:
            raise ValueError(f"`$.values.{name}` is not whole")
    longest_s = max((sample.wall_s for sample in run.samples), default=0.0)
    if run.elapsed_s and longest_s > CLOCKS * run.elapsed_s:
        raise ValueError(f"a sample takes {longest_s:g} s, and the whole run {run.elapsed_s:g} s")
    return replace(run, values=values)
