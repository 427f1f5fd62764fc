import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.records import units

SCALES = {
    **dict(units.TIMES),
    **dict(units.SIZES),
    **{f"{prefix}FLOP": scale for prefix, scale in units.PREFIXES},
    "×": 1.0,
    "": 1.0,
}


def parsed(text: str) -> float:
    """The number in a text, in base units."""
    number, unit = re.fullmatch(r"(-?[\d,.]+)\s*(\D*)", text).groups()
    return float(number.replace(",", "")) * SCALES[unit]


@pytest.mark.parametrize(
    ("printed", "value", "text"),
    [
        (units.seconds, 1.2e-3, "1.20 ms"),
        (units.seconds, 0.9996e-3, "1.00 ms"),
        (units.seconds, 999.4e-6, "999 µs"),
        (units.seconds, 3e-9, "3.00 ns"),
        (units.seconds, 12.34, "12.3 s"),
        (units.seconds, 599.0, "599 s"),
        (units.seconds, 600.0, "10.0 min"),
        (units.seconds, 36_000.0, "10.0 h"),
        (units.seconds, 0.0, "0 s"),
        (units.seconds, math.nan, "–"),
        (units.seconds, math.inf, "–"),
        (units.size, 194 * 2**20, "194.0 MiB"),
        (units.size, 512, "512 B"),
        (units.size, 1536, "1.500 KiB"),
        (units.size, 12.25 * 2**30, "12.25 GiB"),
        (units.size, 2**20 - 1, "1.000 MiB"),
        (units.size, -3 * 2**20, "-3.000 MiB"),
        (units.size, math.nan, "–"),
        (units.span, 0.2, "0 s"),
        (units.span, 59.4, "59 s"),
        (units.span, 59.6, "1 min 00 s"),
        (units.span, 250.0, "4 min 10 s"),
        (units.span, 7500.0, "2 h 05 min"),
        (units.span, float("inf"), "–"),
    ],
)
def test_numbers_have_units_that_suit_them(printed, value: float, text: str):
    """Seconds, sizes in powers of 1,024, and times to wait, which are short."""
    assert printed(value) == text


@pytest.mark.parametrize(
    ("point", "low", "high", "text"),
    [
        (12.3456, 11.9, 12.8, "12.35 ±0.45"),
        (370_123.0, 358_000.0, 382_000.0, "370,000 ±12,000"),
        (5.0, math.nan, math.nan, "5.00*"),
        (5.0, 5.0, 5.0, "5.00"),
        (1.0, 0.5, 3.0, "1.0 [0.50, 3.0]"),
        (24.0, 9.0, 62.0, "24 [9.0, 62]"),
        (0.0123, 0.0121, 0.0126, "0.01230 ±0.00030"),
        (123.4, 123.3999999, 123.4000001, "123.40 ±0.00"),
        (math.nan, math.nan, math.nan, "–"),
    ],
)
def test_estimates_show_the_digits_that_their_interval_supports(
    point: float, low: float, high: float, text: str
):
    assert units.estimate(point, low, high) == text


def test_lengths_ticks_and_ratios():
    ticks = [units.tick(n) for n in (128, 512, 1000, 1024, 65_535, 65_536)]
    assert ticks == ["128", "512", "1,000", "1K", "65,535", "64K"]
    assert units.ratio(1.2345) == "1.23×"
    assert units.ratio(0.01234) == "0.0123×"
    assert units.exponent(1.984) == "1.98"
    assert units.exponent(-0.02) == "−0.02", "a minus sign, not a hyphen"
    assert (units.exponent(-0.002), units.percent(-2e-4)) == ("0.00", "0.0 %")
    assert units.count(274_489) == "274,489"
    assert units.flops(1.234e9) == "1.23 GFLOP"
    assert units.percent(0.0312) == "3.1 %"
    assert units.percent(0.5) == "50 %"
    assert units.change(0.78) == "−22 %"
    assert units.change(257.0) == "257×"
    assert units.round_tick("10.0 ms") == "10 ms"
    assert units.round_tick("100 ms") == "100 ms"


POSITIVE = st.floats(1e-9, 1e15)


@given(POSITIVE)
def test_texts_parse_back_within_their_rounding(value: float):
    assert parsed(units.plain(value)) == pytest.approx(value, rel=0.00501)
    assert parsed(units.flops(max(value, 1.0))) == pytest.approx(max(value, 1.0), rel=0.00501)
    assert parsed(units.size(max(value, 1024))) == pytest.approx(max(value, 1024), rel=0.000501)
    if value < 1e7:
        assert parsed(units.seconds(value)) == pytest.approx(value, rel=0.00501)


@given(st.floats(1e-6, 1e9), st.floats(2e-3, 0.199))
def test_the_interval_shown_is_that_of_the_estimate(point: float, share: float):
    text = units.estimate(point, point * (1 - share / 2), point * (1 + share))
    shown, half = (float(part.replace(",", "")) for part in text.split(" ±"))
    assert half == pytest.approx(point * share, rel=0.051)
    assert shown == pytest.approx(point, abs=0.051 * point * share + 1e-12)


@given(st.floats(1e-6, 1e9), st.floats(0.21, 0.99), st.floats(0.21, 20))
def test_a_wide_interval_shows_both_its_ends(point: float, below: float, above: float):
    low, high = point * (1 - below), point * (1 + above)
    shown = re.fullmatch(r"(\S+) \[(\S+), (\S+)\]", units.estimate(point, low, high))
    assert [parsed(text) for text in shown.groups()] == pytest.approx([point, low, high], rel=0.051)
