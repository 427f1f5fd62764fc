"""Claims: rows of a CSV file, each a check of a relation between costs that a sweep may measure.

Rows with one id are checks that must all hold. `records/published/README.md` explains the columns.
"""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from attnbench.errors import UsageError
from attnbench.records import Mode, Selection, metrics, selection

Reader: TypeAlias = tuple[Callable[[str, str], Any], str]

FACTOR = 2.0  # a number alone allows this factor, since machines, code and sizes differ
ALLOWED = 0.1  # an exponent alone allows so much either way

# the keys of metrics that a claim may be about, by their names
COSTS = MappingProxyType(
    {n: row.key for n, row in metrics.NAMED.items() if row.better is metrics.Better.LOWER}
)
TEXTS = ("id", "claim", "source", "scope")
# of each predicate, the columns that it needs, and those that it may have
PREDICATES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = MappingProxyType({
    "less": (("a", "b"), ("quantity", "mode", "lengths", "value")),
    "ratio": (("a", "b", "lengths", "value"), ("quantity", "mode")),
    "exponent": (("a", "value"), ("quantity", "mode")),
    "crossover": (("a", "b", "value"), ("mode",)),
})  # fmt: skip


class Range(NamedTuple):
    """From `low` to `high`; of lengths perhaps only the `longest` that was measured."""

    low: float = 0.0
    high: float = inf
    longest: bool = False

    def among(self, lengths: Sequence[int]) -> list[int]:
        """Those of the lengths that are meant."""
        within = [n for n in lengths if self.low <= n <= self.high]
        return within[-1:] if self.longest else within


class Check(NamedTuple):
    """A predicate of costs: the key of a metric, and a mode, or all of the sweep but decode."""

    predicate: str
    a: tuple[Selection, ...]
    b: tuple[Selection, ...] = ()
    quantity: str = metrics.TIME
    mode: Mode | None = None
    lengths: Range = Range()
    value: Range = Range(high=1.0)

    @property
    def counted(self) -> bool:
        """Whether it is about counts alone, which are the same in every mode."""
        return metrics.TABLE[self.quantity].tolerance == metrics.EXACT


class Claim(NamedTuple):
    """An assertion: its id, sentence, source and scope as `texts`, and the checks, all to hold."""

    texts: Mapping[str, str]
    checks: list[Check]


def read_claims(text: str, name: str) -> tuple[Claim, ...]:
    """The claims of a CSV text, of the file `name`, whose columns may be in any order.

    Raises `UsageError` with the line that cannot be read, and what was expected there.
    """
    rows = csv.DictReader(io.StringIO(text, newline=""))
    claims = dict[str, Claim]()
    try:
        for row in rows:
            check = read_check(row)
            texts = {key: row.get(key, "") for key in TEXTS}
            claims.setdefault(row["id"], Claim(texts, [])).checks.append(check)
    except (ValueError, csv.Error) as error:
        raise UsageError(f"{name}, line {rows.line_num}: {error}") from error
    if not claims:
        raise UsageError(f"{name} has no claims; expected one per row below the column names")
    return tuple(claims.values())


def read_check(row: Mapping[str | Any, Any]) -> Check:
    """The check in a row. Raises `ValueError`: in which column, and what was expected."""
    columns = (*TEXTS, "predicate", *READERS)
    if None in row.values() or not {"id", "claim", "predicate", "a"} <= row.keys() <= {*columns}:
        raise ValueError(f"expected id, claim, predicate, a, and others of {', '.join(columns)}")
    if (predicate := row["predicate"]) not in PREDICATES:
        raise ValueError(f"predicate {predicate!r} is not one of {', '.join(PREDICATES)}")
    needed, further = PREDICATES[predicate]
    cells = {name: cell for name in READERS if (cell := row.get(name, "").strip())}
    if not {*needed} <= cells.keys() <= {*needed, *further}:
        may = f", and may have {', '.join(further)}" if further else ""
        raise ValueError(f"{predicate} needs {', '.join(needed)}{may}; found {', '.join(cells)}")
    for name, cell in cells.items():
        read, expected = READERS[name]
        try:
            cells[name] = read(cell, predicate)
        except (ValueError, KeyError, UsageError) as error:
            raise ValueError(f"{name} {cell!r} is not {expected}") from error
    return Check(predicate=predicate, **cells)


def _range(text: str, alone: Callable[[float], tuple[float, float]]) -> Range:
    """`<= 512`, `>= 2`, `1024..2048`, `longest >= 4096`, or what a number alone allows."""
    rest = text.removeprefix("longest").strip()
    sign = rest[:2] if rest[:2] in ("<=", ">=") else ""
    first, dots, last = (rest or "1..1e9").removeprefix(sign).partition("..")
    low = float(first)
    high = float(last or first)
    if not 0 < low <= high < inf or (sign and dots):
        raise ValueError
    if not dots:
        low, high = {"<=": (0.0, low), ">=": (low, inf)}.get(sign) or alone(low)
    return Range(low, high, rest != text)


def _alone(predicate: str, number: float) -> tuple[float, float]:
    """The range that a claimed number allows, where the claim gives no range."""
    if predicate == "less":
        return 0.0, number
    if predicate == "exponent":
        return number - ALLOWED, number + ALLOWED
    # a claimed gain is not reproduced by a loss
    least = float(number > 1)
    most = 1.0 if number < 1 else inf
    return max(number / FACTOR, least), min(number * FACTOR, most)


SERIES: Reader = (
    lambda text, _: tuple(map(Selection.read, selection.parts(text, ""))),
    "mechanisms such as transformer:eager or linformer[rank=8]",
)
# of each column the reader of a cell and its predicate, and what an error says was expected
READERS: Mapping[str, Reader] = MappingProxyType({
    "a": SERIES,
    "b": SERIES,
    "quantity": (lambda text, _: COSTS[text], ", ".join(COSTS)),
    "mode": (lambda text, _: Mode(text), ", ".join(Mode)),
    "lengths": (lambda text, _: _range(text, lambda n: (n, n)),
                "lengths such as >= 512, 512..4096, 1024 or longest >= 4096"),
    "value": (lambda text, predicate: _range(text, partial(_alone, predicate)),
              "a number such as 2, or a range such as >= 2"),
})  # fmt: skip
