"""A small file of what a check counts and times, to be committed and read in a diff.

    {"attnbench": …, "cases": {"fastformer:eager/B8-N128-…": {"flops": …, …}}, "machine": …,
     "schema": 1, "settings": …}

Sorted, one number a line, and the same bytes for the same numbers. It is data: loading parses
JSON, checks every field, and runs nothing. `time` has seconds of one iteration, one of each
process, at a batch of its own; `machine` says where they can be compared.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from attnbench.errors import NewerSchema, StoreError
from attnbench.records import Level, Mode, Workload
from attnbench.store import output

SCHEMA = 1
LARGEST = 1 << 24  # bytes of a file that is still taken for one
LABEL = re.compile(
    r"(?P<series>.+)/B(?P<batch>\d+)-N(?P<seq_len>\d+)-D(?P<width>\d+)-H(?P<heads>\d+)"
    r"/(?P<level>\w+)/(?P<mode>\w+)/(?P<dtype>\w+)/(?P<device>[\w:]+)(?P<causal>/causal)?"
)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What must agree for times to be compared."""

    processor: str
    cores: int
    threads: int
    torch: str
    device: str

    def differences(self, other: "Machine") -> tuple[str, ...]:
        """What does not agree: `torch: 2.12.0 and 2.13.0`."""
        names = [f.name for f in fields(self)]
        pairs = [(name, getattr(self, name), getattr(other, name)) for name in names]
        return tuple(f"{name}: {a} and {b}" for name, a, b in pairs if a != b)


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Seconds of one iteration of `batch` sequences, the median of each process."""

    batch: int
    seconds: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What is kept of one case."""

    counts: Mapping[str, float] = field(default_factory=dict)
    time: Timing | None = None


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """A whole file; cases go by their printed name."""

    attnbench: str
    machine: Machine
    cases: Mapping[str, Entry]
    schema: int = SCHEMA


def save(baseline: Baseline, path: Path) -> None:
    """Write the file whole or not at all. Raises `StoreError`."""
    output.write(path, dump(baseline).encode(), stream=True)


def dump(baseline: Baseline) -> str:
    """The file's text."""
    cases = {}
    for label, entry in baseline.cases.items():
        row: dict[str, Any] = {key: whole(value) for key, value in entry.counts.items()}
        if entry.time is not None:
            row["time"] = asdict(entry.time)
        cases[label] = row
    data = {
        "attnbench": baseline.attnbench,
        "cases": cases,
        "machine": asdict(baseline.machine),
        "schema": baseline.schema,
    }
    return json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def load(path: Path) -> Baseline:
    """The file. Raises `StoreError` saying what is wrong with it, `NewerSchema`."""
    try:
        if path.stat().st_size > LARGEST:
            raise StoreError(f"{str(path)!r} is too large for a baseline")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        said = getattr(error, "strerror", None) or "it is not text"
        raise StoreError(f"cannot read the baseline {str(path)!r}: {said}") from error
    return parse(text, str(path))


def parse(text: str, name: str = "baseline") -> Baseline:
    """The baseline that a text holds. Raises `StoreError` or `NewerSchema`."""
    try:
        data = json.loads(text, parse_constant=_refuse)
        schema = data["schema"]
        if isinstance(schema, int) and schema > SCHEMA:
            raise NewerSchema(f"{name} has schema {schema}; this attnbench reads {SCHEMA}")
        if schema != SCHEMA:
            raise ValueError(f"schema {schema!r}")
        return Baseline(
            attnbench=_text(data["attnbench"]),
            machine=_machine(data["machine"]),
            cases={_label(label): _entry(row) for label, row in data["cases"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StoreError(
            f"{name} is no baseline: {type(error).__name__} {error}; make one with --save"
        ) from error


def workload_of(label: str) -> tuple[str, Workload]:
    """Series and workload of a case's printed name. Raises `StoreError`."""
    match = LABEL.fullmatch(label)
    if match is None:
        raise StoreError(f"{label!r} does not read as a case")
    found = match.groupdict()
    return found["series"], Workload(
        batch=int(found["batch"]),
        seq_len=int(found["seq_len"]),
        width=int(found["width"]),
        heads=int(found["heads"]),
        level=Level(found["level"]),
        mode=Mode(found["mode"]),
        dtype=found["dtype"],
        device=found["device"],
        causal=found["causal"] is not None,
    )


def whole(value: float) -> float | int:
    """A count without a fraction as an integer, so that it is written as one."""
    return int(value) if float(value).is_integer() else value


def _label(label: str) -> str:
    workload_of(label)
    return label


def _machine(data: Mapping[str, Any]) -> Machine:
    return Machine(
        processor=_text(data["processor"]),
        cores=_count(data["cores"]),
        threads=_count(data["threads"]),
        torch=_text(data["torch"]),
        device=_text(data["device"]),
    )


def _entry(row: Mapping[str, Any]) -> Entry:
    time = row.get("time")
    counts = {key: _number(value) for key, value in row.items() if key != "time"}
    if time is None:
        return Entry(counts=counts)
    seconds = tuple(_number(value) for value in time["seconds"])
    return Entry(counts=counts, time=Timing(batch=_count(time["batch"]), seconds=seconds))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"{value!r} is not a number of something")
    return value


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a number")
