"""Quantities as text, wherever they are stored or shown.

Three significant digits unless more is known. 1 MiB is always 2^20 bytes.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

NOTHING = "–"

TIMES = (("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("min", 60.0), ("h", 3600.0))
SIZES = tuple((unit, 1024.0**power) for power, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB")))
PREFIXES = tuple(
    (prefix, 1000.0**power) for power, prefix in enumerate(("", "k", "M", "G", "T", "P", "E"))
)

MIB = 2.0**20

UNBOUNDED = "*"  # marks a number with too few samples for an interval
NARROW = 0.2  # intervals with half-widths above this share of the point are far from symmetric
MANIFOLD = 10.0  # ratio from which a change is shown as a ratio, not a percentage


def seconds(value: float) -> str:
    """`1.20 ms`; minutes from 600 s, hours from 600 min."""
    if value == 0:
        return "0 s"
    return _scaled(value, TIMES, 3, lambda unit: 600 if unit in ("s", "min") else 1000)


def span(value: float) -> str:
    """`39 s`, `4 min 10 s`, `2 h 05 min`: a waiting time."""
    if not has_value(value):
        return NOTHING
    whole = max(0, round(value))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60:02} min"


def size(value: float) -> str:
    """`194.0 MiB`: four digits, since bytes are counted, not estimated."""
    if abs(value) < 1024:
        return f"{value:.0f} B"
    return _scaled(value, SIZES, 4, lambda unit: 1024)


def flops(value: float) -> str:
    """`1.23 GFLOP`."""
    return _scaled(value, PREFIXES, 3, lambda unit: 1000) + "FLOP" if has_value(value) else NOTHING


def count(value: float) -> str:
    """`274,489`."""
    return f"{value:,.0f}" if has_value(value) else NOTHING


def many(value: int, noun: str) -> str:
    """`1 core`, `2 cores`."""
    return f"{count(value)} {noun}{'' if value == 1 else 's'}"


def capitalised(text: str) -> str:
    """The text with its first letter in upper case."""
    return text[0].upper() + text[1:]


def few(items: Iterable[Any], most: int = 5) -> str:
    """`2/9, 3/9, …`: the first `most` items, and whether there are more."""
    shown = list(map(str, islice(items, most + 1)))
    return ", ".join(shown if len(shown) <= most else [*shown[:most], "…"])


def between(first: float, last: float, text: Callable[[Any], str] = count) -> str:
    """`128 to 512`; `128` if both look the same."""
    return " to ".join(dict.fromkeys((text(first), text(last))))


def plain(value: float, digits: int = 3) -> str:
    """The number in `digits` significant digits, never in powers of ten: `0.0123`, `1,230`."""
    if not has_value(value):
        return NOTHING
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")
    return f"{rounded:,.{max(0, digits - 1 - magnitude(rounded))}f}"


def has_value(value: float | None) -> bool:
    """Whether there is a number to show."""
    return value is not None and math.isfinite(value)


def magnitude(value: float) -> int:
    """The power of ten of the first digit; 0 for zero."""
    return math.floor(math.log10(abs(value))) if value else 0


def tick(value: int) -> str:
    """`128`, `1K`, `64K`, `1M`; a length that is no multiple of 1,024 is written out."""
    for unit, size in (("M", 1 << 20), ("K", 1 << 10)):
        if value >= size and value % size == 0:
            return f"{value // size}{unit}"
    return f"{value:,}"


def ratio(value: float) -> str:
    """`1.23×`."""
    return f"{plain(value)}×" if has_value(value) else NOTHING


def exponent(value: float) -> str:
    """`1.98`, `−0.02`."""
    return signed(f"{value:z.2f}") if has_value(value) else NOTHING


def percent(value: float) -> str:
    """`12 %` for 0.12; one decimal under 10 %."""
    if not has_value(value):
        return NOTHING
    share = 100 * value
    return signed(f"{share:.0f} %" if abs(share) >= 9.95 else f"{share:z.1f} %")


def signed(number: str) -> str:
    """The number with a minus sign in place of a hyphen."""
    return number.replace("-", "−")


def change(ratio: float) -> str:
    """`+8.3 %` for 1.083, `−8.3 %` for 0.917, and `257×` from a factor of ten on."""
    if ratio >= MANIFOLD:
        return f"{plain(ratio)}×"
    return ("+" if ratio >= 1 else "") + percent(ratio - 1)


def estimate(point: float, low: float, high: float) -> str:
    """`12.34 ±0.45`, the larger half-width; `24 [12, 62]` if wide; `188*` without an interval."""
    if not has_value(point):
        return NOTHING
    if not (has_value(low) and has_value(high)):
        return plain(point) + UNBOUNDED
    half = max(point - low, high - point)
    if half <= 0:
        return plain(point)
    if half > NARROW * abs(point):
        return interval(plain(point, 2), plain(low, 2), plain(high, 2))
    # two digits of the half-width; more than five of the point would only be noise to the eye
    places = min(1 - magnitude(float(f"{half:.1e}")), 4 - magnitude(point))
    return " ±".join(f"{round(x, places):,.{max(0, places)}f}" for x in (point, half))


def interval(text: str, low: str, high: str) -> str:
    """`640 [512, 780]`."""
    return f"{text} [{low}, {high}]"


def round_tick(text: str) -> str:
    """`10 ms` for `10.0 ms`: a number on an axis without trailing zeros."""
    number, _, unit = text.partition(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}".strip()


def _scaled(
    value: float, units: Sequence[tuple[str, float]], digits: int, limit: Callable[[str], int]
) -> str:
    if not has_value(value):
        return NOTHING
    for unit, scale in units:
        rounded = float(f"{value / scale:.{digits - 1}e}")
        if abs(rounded) < limit(unit) or unit == units[-1][0]:
            return f"{plain(rounded, digits)} {unit}"
    raise AssertionError("units are never empty")
