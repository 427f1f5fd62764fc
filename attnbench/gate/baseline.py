"""A small file with a check's counts, to be committed and read in a diff.

    {"attnbench": …, "cases": {"fastformer:eager/B8-N128-…": {"flops": …, …}}, "schema": 2,
     "torch": …}

Sorted, one number per line; the same numbers give the same bytes. It is data: loading parses
JSON, checks every field, and runs nothing.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from attnbench.errors import OtherSchema, StoreError
from attnbench.records import Amount, Case, Work
from attnbench.store import output

SCHEMA = 2
LARGEST = 1 << 24  # bytes of a file that is read


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """A whole file: the counts of each case by its label, and the versions that gave them."""

    attnbench: str
    torch: str
    cases: Mapping[str, Mapping[str, Work | Amount]]
    schema: int = SCHEMA


def save(baseline: Baseline, path: Path) -> None:
    """Write the file atomically. Raises `StoreError`."""
    output.write(path, dump(baseline).encode())


def dump(baseline: Baseline) -> str:
    """The file's text."""
    cases = {
        label: {name: whole(count) for name, count in counts.items()}
        for label, counts in baseline.cases.items()
    }
    data = {**asdict(baseline), "cases": cases}
    return json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def load(path: Path) -> Baseline:
    """The baseline in a file. Raises `StoreError` that says what is wrong, or `OtherSchema`."""
    try:
        with open(path, "rb") as opened:
            content = opened.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise StoreError(f"{str(path)!r} is too large for a baseline")
        text = content.decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise StoreError(f"cannot read the baseline {str(path)!r}: {reason}") from error
    return parse(text, str(path))


def parse(text: str, name: str = "baseline") -> Baseline:
    """The baseline in a text. Raises `StoreError` or `OtherSchema`."""
    try:
        data = json.loads(text)
        schema = data["schema"]
        if isinstance(schema, int) and schema > SCHEMA:
            raise OtherSchema(f"{name} has schema {schema}; this attnbench reads {SCHEMA}")
        if schema != SCHEMA:
            raise ValueError(f"schema {schema!r}")
        data["cases"] = {str(Case.read(label)): row for label, row in data["cases"].items()}
        return msgspec.convert(data, Baseline)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise StoreError(
            f"{name} is not a baseline: {type(error).__name__} {error}; make one with --save"
        ) from error


def whole(value: float) -> float | int:
    """The value as an integer if it is one, so that it is written as one."""
    return int(value) if float(value).is_integer() else value
