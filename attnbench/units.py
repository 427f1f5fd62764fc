"""Quantities as text, wherever they are stored or shown.

Three significant digits unless more is known. 1 MiB is always 2^20 bytes.
"""

import math
from collections.abc import Callable, Sequence

NOTHING = "–"

TIMES = (("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("min", 60.0), ("h", 3600.0))
SIZES = tuple((unit, 1024.0**power) for power, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB")))
PREFIXES = tuple(
    (prefix, 1000.0**power) for power, prefix in enumerate(("", "k", "M", "G", "T", "P", "E"))
)

MIB = 2.0**20


def seconds(value: float) -> str:
    """`1.20 ms`; minutes from 600 s, hours from 600 min."""
    if value == 0:
        return "0 s"
    return _scaled(value, TIMES, 3, lambda unit: 600 if unit in ("s", "min") else 1000)


def size(value: float) -> str:
    """`194.0 MiB`: four digits, since bytes are counted, not estimated."""
    if value < 1024:
        return f"{value:.0f} B"
    return _scaled(value, SIZES, 4, lambda unit: 1024)


def flops(value: float) -> str:
    """`1.23 GFLOP`."""
    return _scaled(value, PREFIXES, 3, lambda unit: 1000) + "FLOP" if known(value) else NOTHING


def rate(value: float) -> str:
    """`1.23 GFLOP/s`."""
    return f"{flops(value)}/s" if known(value) else NOTHING


def count(value: float) -> str:
    """`274,489`."""
    return f"{value:,.0f}" if known(value) else NOTHING


def many(value: int, noun: str) -> str:
    """`1 core`, `2 cores`."""
    return f"{count(value)} {noun}{'' if value == 1 else 's'}"


def length(value: int) -> str:
    """`65,536`."""
    return f"{value:,}"


def plain(value: float, digits: int = 3) -> str:
    """A number with `digits` significant digits and no exponent: `0.0123`, `1,230`."""
    if not known(value):
        return NOTHING
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")
    return f"{rounded:,.{max(0, digits - 1 - magnitude(rounded))}f}"


def known(value: float | None) -> bool:
    """Whether there is a number to show."""
    return value is not None and math.isfinite(value)


def magnitude(value: float) -> int:
    """The power of ten of the first digit; 0 for zero."""
    return math.floor(math.log10(abs(value))) if value else 0


def _scaled(
    value: float, units: Sequence[tuple[str, float]], digits: int, limit: Callable[[str], int]
) -> str:
    if not known(value):
        return NOTHING
    for unit, scale in units:
        rounded = float(f"{value / scale:.{digits - 1}e}")
        if abs(rounded) < limit(unit) or unit == units[-1][0]:
            return f"{plain(rounded, digits)} {unit}"
    raise AssertionError("units are never empty")
