"""The bytes of a model's weights, on each of some cards, and from where they are known."""

import re
from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from attnbench.commands.model.weights import Weights
from attnbench.errors import UsageError
from attnbench.running.request import axes

WIDEST = 64  # bits of a number
COUNTED = "counted"
FILES = "files"
GIVEN = "given"


class WeightOption(NamedTuple):
    """What `--weights` says: the bits of each number, or the bytes of all; neither without it."""

    bits: Fraction | None = None
    total: int | None = None


class WeightBytes(NamedTuple):
    """The bytes of all weights and of those on the fullest card, None where they are not known.

    source: `COUNTED` parameters, the `FILES` beside the configuration, or `GIVEN` by an option.
    bits: of each parameter, None where no number type holds for all.
    """

    total: int | None
    on_card: int | None
    source: str
    bits: Fraction | None


def weight_option(text: str | None) -> WeightOption:
    """`8` and `4.25` are bits of a number, `60GiB` all bytes. Raises `UsageError`."""
    if text is None:
        return WeightOption()
    if re.fullmatch(r"\d{1,2}(\.\d{1,4})?", text.strip()):
        bits = Fraction(text.strip())
        if 0 < bits <= WIDEST:
            return WeightOption(bits=bits)
    try:
        return WeightOption(total=axes.memory(text, "--weights"))
    except UsageError as error:
        raise UsageError(
            f"--weights {text!r} is neither bits of a number up to {WIDEST} nor a size of memory;"
            " write 8 or 60GiB"
        ) from error


def weight_bytes_on(
    cards: int,
    counted: Sequence[Weights],
    option: WeightOption,
    files: int | None,
    bits: Fraction | None,
) -> WeightBytes:
    """The bytes of weights: as an option says, else of files, else of the counted parameters.

    cards: that share them by tensor parallelism.
    counted: the parameters, nothing where they cannot be counted; each card then has an equal part.
    option: what the user says.
    files: bytes of the files beside the configuration, None without one.
    bits: of a parameter by the configuration, None where it does not say.
    """
    numbers = sum(one.numbers for one in counted)
    on_card = sum((one.on_card(cards) for one in counted), Fraction(0))
    part = on_card / numbers if numbers else Fraction(1, cards)
    bits = option.bits or bits
    total = option.total
    source = GIVEN
    if total is None and option.bits is None:
        total = files
        source = FILES
    if total is not None:
        return WeightBytes(total, ceil(total * part), source, bits)
    if not numbers or bits is None:
        return WeightBytes(None, None, COUNTED, bits)
    return WeightBytes(size_of(numbers, bits), size_of(on_card, bits), COUNTED, bits)


def size_of(numbers: int | Fraction, bits: Fraction) -> int:
    """The bytes of so many numbers."""
    return ceil(numbers * bits / 8)


def bits_text(bits: Fraction) -> str:
    """`8 bits`, `4.25 bits`."""
    return f"{float(bits):g} {'bit' if bits == 1 else 'bits'}"
