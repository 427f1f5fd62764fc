"""A series: one curve of a sweep, as a value, and as its name is written.

name[:form][[option=value,...]][ sizes]
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

from attnbench.records.bounds import SHORT_DTYPES, Option
from attnbench.records.selection import Selection

# what a sweep may cross, as it ends the names of series
SIZES: Mapping[str, str] = MappingProxyType(
    {"width": "D={}", "heads": "H={}", "dtype": "{}", "batch": "B={}", "step": "S={}"}
)
SUFFIX = re.compile(rf"(?: (?:[DHBS]=\d+|{'|'.join(SHORT_DTYPES)}))+$")
# the mechanism of a name without sizes; of a file, with the class or function that it names
MECHANISM = re.compile(r"(?s)stack\(.*\)|.*?\.py:[^:[]*|[^:[]*")


@dataclass(frozen=True, kw_only=True)
class Series:
    """A mechanism with its form, options and, where they differ, sizes along the lengths.

    mechanism: its name, or that of a stack or of a module in a file
    form:      None where the form changes along the lengths
    options:   those that differ from the mechanism's defaults, sorted by name
    sizes:     those that its plan crosses, as they are written: `D=64 bf16`
    """

    mechanism: str
    form: str | None = None
    options: tuple[tuple[str, Option], ...] = ()
    sizes: str = ""

    @property
    def plain(self) -> str:
        """The name without sizes: `linformer:eager[rank=16]`."""
        return str(Selection(name=self.mechanism, form=self.form, options=self.options))

    def __str__(self) -> str:
        return f"{self.plain} {self.sizes}" if self.sizes else self.plain


@dataclass(frozen=True, kw_only=True)
class Name:
    """The parts of the name of a series, where only the name is known: in tables and frames.

    plain:     all but the sizes
    mechanism: also the function of a file that stands for a form of it
    form:      empty where there is none
    options:   as they are written, without brackets
    sizes:     as they are written
    """

    plain: str
    mechanism: str
    form: str = ""
    options: str = ""
    sizes: str = ""

    @classmethod
    def read(cls, series: str) -> Self:
        """The parts of a name, whatever it is."""
        suffix = SUFFIX.search(series)
        plain = series[: suffix.start()] if suffix else series
        match = MECHANISM.match(plain)
        mechanism = match[0] if match else ""
        form, _, options = plain.removeprefix(mechanism).partition("[")
        return cls(
            plain=plain,
            mechanism=mechanism,
            form=form.removeprefix(":"),
            options=options.removesuffix("]"),
            sizes=suffix[0].strip() if suffix else "",
        )


def size_text(size: str, value: int | str) -> str:
    """`D=64`, `bf16`: one of the `SIZES` in the name of a series."""
    short = {full: text for text, full in SHORT_DTYPES.items()}
    return SIZES[size].format(short.get(str(value), value))
