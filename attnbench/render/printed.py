"""The papers' own tables of complexity, as they were printed."""

import csv
import io
from dataclasses import dataclass
from importlib.resources import files

import msgspec


@dataclass(frozen=True, kw_only=True)
class PrintedCost:
    """A row of a paper's table of complexity.

    `power` is the printed exponent of N with all other symbols held fixed; `log` adds a logarithm.
    A `slip` says where the table contradicts the paper's text or omits a cost. Only the survey
    prints `decode`, yes or no, and the family.
    """

    table: str
    source: str
    mechanism: str
    name: str
    printed: str
    power: float
    log: bool
    decode: str
    family: str
    slip: str


def printed_costs() -> tuple[PrintedCost, ...]:
    """Every row, in the order of the tables."""
    file = files("attnbench").joinpath("published", "complexity.csv")
    rows = [*csv.DictReader(io.StringIO(file.read_text(encoding="utf-8")))]
    return msgspec.convert(rows, tuple[PrintedCost, ...], strict=False)
