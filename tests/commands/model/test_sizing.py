"""The bytes of weights, by what is said of them, by files, or counted."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.commands.model.sizing import (
    WeightOption,
    bits_text,
    size_of,
    weight_bytes_on,
    weight_option,
)
from attnbench.commands.model.weights import EXPERTS, Weights
from attnbench.errors import UsageError


def test_bytes_are_those_of_the_option_then_of_files_then_counted():
    weights = [Weights(EXPERTS, 1000, units=10, rows=True), Weights(EXPERTS, 200)]

    def found(text, files, bits=Fraction(16)):
        return weight_bytes_on(4, weights, weight_option(text), files, bits)

    assert found(None, None)[:2] == (2400, 2 * (300 + 200))
    assert found("8", 9_600)[:2] == (1200, 500)
    assert found(None, 9_600)[:2] == (9_600, 4_000)
    assert found("1k", 9_600).total == 1024
    assert found("4.5", None).total == 675
    assert found(None, None, None)[:2] == (None, None)
    assert weight_bytes_on(4, [], WeightOption(), 100, None)[:2] == (100, 25)


@pytest.mark.parametrize("text", ["80", "0", "8bit", "-8", "65", "1/2", ""])
def test_a_size_of_weights_that_cannot_be_read_is_refused(text):
    with pytest.raises(UsageError, match="is neither bits of a number up to 64 nor a size"):
        weight_option(text)


@pytest.mark.parametrize(
    ("text", "option"),
    [
        (None, (None, None)),
        ("8", (8, None)),
        (" 4.25 ", (Fraction(17, 4), None)),
        ("64", (64, None)),
        ("60GiB", (None, 60 << 30)),
        ("512MiB", (None, 512 << 20)),
    ],
)
def test_weights_are_bits_of_a_number_or_bytes_of_all(text, option):
    assert weight_option(text) == option


@given(st.integers(1, 10**12), st.integers(1, 256).map(lambda n: Fraction(n, 4)))
def test_bytes_are_whole_and_hold_all_bits(numbers, bits):
    found = size_of(numbers, bits)
    assert 8 * (found - 1) < numbers * bits <= 8 * found


def test_bits_are_described_as_they_were_written():
    assert [bits_text(Fraction(n, 4)) for n in (4, 17, 32)] == ["1 bit", "4.25 bits", "8 bits"]
