"""Claims: rows of a CSV file, each a relation between costs that a sweep may measure.

    predicate  a                  b                  quantity    mode       lengths          value
    less       fastformer         linformer,bigbird  time        inference  longest >= 4096
    ratio      transformer:eager  linformer[rank=8]  memory      training   4096             20
    exponent   performer                             core_flops                              1
    crossover  transformer        fastformer                     training                    <= 512

Further rows with the id of a claim add checks to it; all must hold. `published/README.md` explains
the columns.
"""

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from math import inf
from types import MappingProxyType
from typing import Any

from attnbench.errors import UsageError
from attnbench.metrics import EXACT, NAMED, TABLE, TIME, Better
from attnbench.records import Mode, Selection
from attnbench.records.selection import parts

FACTOR = 2.0  # a number alone allows this factor, since machines, code and sizes differ
ALLOWED = 0.1  # an exponent alone allows so much either way

# the keys of metrics that a claim may be about, by their names
COSTS = MappingProxyType({n: row.key for n, row in NAMED.items() if row.better is Better.LOWER})

TEXTS = ("id", "source", "claim", "scope")
# of each predicate, the columns that it needs besides `a`, and those that it may have
PREDICATES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = MappingProxyType({
    "less": (("b",), ("quantity", "mode", "lengths", "value")),
    "ratio": (("b", "lengths", "value"), ("quantity", "mode")),
    "exponent": (("value",), ("quantity", "mode")),
    "crossover": (("b", "value"), ("mode",)),
})  # fmt: skip


@dataclass(frozen=True)
class Range:
    """From `low` to `high`; of lengths perhaps only the `longest` that was measured."""

    low: float = 0.0
    high: float = inf
    longest: bool = False

    def among(self, lengths: Sequence[int]) -> list[int]:
        """Those of the lengths that are meant."""
        within = [n for n in lengths if self.low <= n <= self.high]
        return within[-1:] if self.longest else within


@dataclass(frozen=True, kw_only=True)
class Check:
    """A predicate of costs; `quantity` is the key of a metric.

    Without a mode, each mode of the sweep but decode is judged.
    """

    predicate: str
    a: tuple[Selection, ...]
    b: tuple[Selection, ...] = ()
    quantity: str = TIME
    mode: Mode | None = None
    lengths: Range = Range()
    value: Range = Range(high=1.0)

    @property
    def counted(self) -> bool:
        """Whether it is about counts alone, which are the same in every mode."""
        return TABLE[self.quantity].tolerance == EXACT


@dataclass(frozen=True, kw_only=True)
class Claim:
    """An assertion of a source in a sentence, and the checks that must all hold.

    `scope`: how and on what the source measured, and whether that is stated or our reading.
    """

    id: str
    claim: str
    checks: tuple[Check, ...]
    source: str = ""
    scope: str = ""


def shipped() -> tuple[Claim, ...]:
    """The claims of Fastformer, Smart Bird and the survey."""
    file = files("attnbench").joinpath("published", "claims.csv")
    return read_claims(file.read_text(encoding="utf-8"), file.name)


def read_claims(text: str, name: str) -> tuple[Claim, ...]:
    """The claims of a CSV text, of the file `name`, whose columns may be in any order.

    Raises `UsageError` with the line that cannot be read, and what was expected there.
    """
    rows, claims = csv.DictReader(io.StringIO(text, newline="")), dict[str, Claim]()
    needed, known = {"id", "claim", "predicate", "a"}, {*TEXTS, "predicate", "a", *READERS}
    try:
        columns = rows.fieldnames or ()
        if not needed <= {*columns} <= known or len({*columns}) < len(columns):
            further = ", ".join(sorted(known - needed))
            raise ValueError(f"expected columns id, claim, predicate, a, and any of {further}")
        for row in rows:
            check, own = read_check(row), {key: row[key] for key in TEXTS if row.get(key)}
            if earlier := claims.get(row["id"]):
                if len(own) > 1:
                    raise ValueError(f"id {row['id']!r} is taken; a further check has only the id")
                claims[row["id"]] = replace(earlier, checks=(*earlier.checks, check))
            elif {"id", "claim"} <= {*own}:
                claims[row["id"]] = Claim(**own, checks=(check,))
            else:
                raise ValueError("expected text in the columns id and claim")
    except (ValueError, csv.Error) as error:
        raise UsageError(f"{name}, line {rows.line_num}: {error}") from error
    if not claims:
        raise UsageError(f"{name} has no claims; expected one per row below the column names")
    return tuple(claims.values())


def read_check(row: Mapping[str | None, Any]) -> Check:
    """The check in a row. Raises `ValueError`: in which column, and what was expected."""
    if None in row or None in row.values():
        raise ValueError("expected as many cells as columns; quote cells that contain commas")
    predicate = row["predicate"].strip()
    if predicate not in PREDICATES:
        raise ValueError(f"predicate {predicate!r} is not one of {', '.join(PREDICATES)}")
    needed, further = PREDICATES[predicate]
    cells = {column: cell for column in ("a", *READERS) if (cell := row.get(column, "").strip())}
    values: dict[str, Any] = {}
    for column in ("a", *READERS):
        cell, (read, expected) = cells.get(column, ""), READERS.get(column, READERS["b"])
        if not cell and column in ("a", *needed):
            raise ValueError(f"column {column} is empty; {predicate} needs {expected}")
        if cell and column not in ("a", *needed, *further):
            raise ValueError(f"{predicate} takes no {column}; leave out {cell!r}")
        try:
            values |= {column: read(cell, predicate)} if cell else {}
        except (ValueError, KeyError, UsageError) as error:
            raise ValueError(f"{column} {cell!r} is not {expected}") from error
    return Check(predicate=predicate, **values)


def _series(text: str, predicate: str) -> tuple[Selection, ...]:
    found = tuple(map(Selection.read, parts(text, "")))
    if len(found) > 1 and predicate in ("ratio", "crossover"):
        raise ValueError
    return found


def _lengths(text: str, _: str) -> Range:
    rest = text.removeprefix("longest").strip()
    found = _range(rest or ">= 1", lambda n: (n, n))
    return replace(found, longest=rest != text)


def _value(text: str, predicate: str) -> Range:
    def alone(number: float) -> tuple[float, float]:
        match predicate:
            case "less":
                return 0.0, number
            case "exponent":
                return number - ALLOWED, number + ALLOWED
        # a claimed gain is not reproduced by a loss
        least, most = float(number > 1), inf if number >= 1 else 1.0
        return max(number / FACTOR, least), min(number * FACTOR, most)

    return _range(text, alone)


def _range(text: str, alone: Callable[[float], tuple[float, float]]) -> Range:
    """`<= 512`, `>= 2`, `1024..2048`, or what a number alone allows."""
    found = re.fullmatch(r"([<>]=)?\s*(.+?)(?:\.\.(.+))?", text)
    if found is None or (found[1] and found[3]):
        raise ValueError
    first, last = float(found[2]), float(found[3] or found[2])
    if not 0 < first <= last < inf:
        raise ValueError
    match found[1]:
        case "<=":
            return Range(high=first)
        case ">=":
            return Range(low=first)
    low, high = (first, last) if found[3] else alone(first)
    return Range(low, high)


# of each column but `a`, which is as `b`, the reader and what an error says was expected
READERS: Mapping[str, tuple[Callable[[str, str], Any], str]] = MappingProxyType({
    "b": (_series, "mechanisms such as transformer:eager or linformer[rank=8]; one of a ratio or"
                   " crossover"),
    "quantity": (lambda text, _: COSTS[text], ", ".join(COSTS)),
    "mode": (lambda text, _: Mode(text), f"{', '.join(Mode)}, or nothing"),
    "lengths": (_lengths, "lengths such as >= 512, 512..4096, 1024 or longest >= 4096"),
    "value": (_value, "a number such as 2, or a range such as >= 2"),
})  # fmt: skip
