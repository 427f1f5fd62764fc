"""Numbers to text for tables and axes; a single quantity reads as in `attnbench.units`.

With an interval a number has as many digits as that supports (two digits of its half-width).
"""

from attnbench.metrics import Unit
from attnbench.units import (
    MIB,
    NOTHING,
    PREFIXES,
    SIZES,
    TIMES,
    count,
    flops,
    known,
    length,
    magnitude,
    many,
    plain,
    rate,
    seconds,
    size,
)

__all__ = (
    "MIB", "NOTHING", "PREFIXES", "SIZES", "TIMES", "UNBOUNDED", "count", "estimate", "exponent",
    "flops", "interval", "known", "length", "many", "percent", "plain", "quantity", "rate",
    "ratio", "round_tick", "seconds", "size", "tick",
)  # fmt: skip

UNBOUNDED = "*"  # marks a number that too few samples gave no interval
NARROW = 0.2  # half-widths above this share of the point are far from symmetric


def quantity(value: float, unit: Unit) -> str:
    """A number with its unit."""
    texts = {Unit.SECONDS: seconds, Unit.BYTES: size, Unit.FLOPS: flops, Unit.COUNT: count}
    texts |= {Unit.RATIO: ratio, Unit.EXPONENT: exponent}
    return texts[unit](value) if unit in texts else f"{plain(value)} {unit}"


def tick(value: int) -> str:
    """`128`, `1K`, `64K`; a length that is not whole in 1,024 is written out."""
    return f"{value // 1024}K" if value >= 1024 and value % 1024 == 0 else f"{value:,}"


def ratio(value: float) -> str:
    """`1.23×`."""
    return f"{plain(value)}×" if known(value) else NOTHING


def exponent(value: float) -> str:
    """`1.98`."""
    return f"{value:.2f}" if known(value) else NOTHING


def percent(value: float) -> str:
    """`12 %` of 0.12; one decimal under 10 %."""
    if not known(value):
        return NOTHING
    share = 100 * value
    return f"{share:.0f} %" if abs(share) >= 9.95 else f"{share:.1f} %"


def estimate(point: float, low: float, high: float) -> str:
    """`12.34 ±0.45`, the larger half-width; `24 [12, 62]` if wide; `188*` without an interval."""
    if not known(point):
        return NOTHING
    if not (known(low) and known(high)):
        return plain(point) + UNBOUNDED
    half = max(point - low, high - point)
    if half <= 0:
        return plain(point)
    if half > NARROW * abs(point):
        return interval(plain(point, 2), plain(low, 2), plain(high, 2))
    # more digits than five would be noise to the eye, however narrow the interval
    rounded = float(f"{half:.1e}")
    places = min(1 - magnitude(rounded), 4 - magnitude(point))
    shown = max(0, places)
    return f"{round(point, places):,.{shown}f} ±{round(half, places):,.{shown}f}"


def interval(text: str, low: str, high: str) -> str:
    """`640 [512, 780]`."""
    return f"{text} [{low}, {high}]"


def round_tick(text: str) -> str:
    """`10 ms` of `10.0 ms`: a number on an axis without zeros behind the point."""
    number, _, unit = text.partition(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}".strip()
