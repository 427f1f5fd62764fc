"""Text to values: lengths, sizes, times, lists. Every error says what is accepted."""

import re
from collections.abc import Sequence
from enum import StrEnum
from math import nan
from typing import TypeVar

from attnbench.errors import UsageError
from attnbench.records import COUNTABLE, Shard, selection

MULTIPLES = ("", "k", "m", "g", "t")  # of 1,024
SECONDS = (("ms", 1e-3), ("s", 1.0), ("", 1.0), ("m", 60.0), ("h", 3600.0))
NUMBER = r"(\d{1,9}(?:\.\d{1,9})?)"
PRECISE = r"(\d{1,9}(?:\.\d{1,20})?(?:e-\d{1,2})?)"  # as Python writes any number of seconds
LONGEST = 1 << 24
MOST = 1_000  # lengths of a sweep
LARGEST = 1 << 20  # larger numbers are typos, and no prediction could hold them
FORMATS = ("png", "svg", "pdf")  # of figures
EXPORTS = ("bmf", "pyperf")  # what other tools read
Word = TypeVar("Word", bound=StrEnum)


def lengths(text: str, option: str = "--lengths") -> tuple[int, ...]:
    """`128..65536:x2`, `100..500:+100`, `512,1000,65535`, or a mixture; sorted, each once."""
    lengths: set[int] = set()
    for part in selection.parts(text, option):
        if re.fullmatch(r"\w+[-:]\w.*", part):
            raise UsageError(f"{option} {part}: write a range as 128..65536:x2 or 100..500:+100")
        more = _range(part, option) if ".." in part else [size(part, option, LONGEST)]
        if len(lengths) + len(more) > MOST:
            raise UsageError(f"{option} {text}: more than {MOST:,} lengths")
        lengths |= set(more)
    return tuple(sorted(lengths))


def _range(text: str, option: str) -> Sequence[int]:
    match = re.fullmatch(r"(\w+)\.\.(\w+)(?::([x+])(\w+))?", text)
    if match is None:
        raise UsageError(f"{option} {text}: write a range as 128..65536:x2 or 100..500:+100")
    first, last = (size(end, option, LONGEST) for end in match.group(1, 2))
    kind = match[3] or "x"
    step = size(match[4] or "2", option)
    if first > last or (kind, step) == ("x", 1):
        raise UsageError(f"{option} {text} has no length; write 128..65536:x2 or 100..500:+100")
    if kind == "+":
        return range(first, last + 1, step)
    lengths = [first]
    while lengths[-1] * step <= last:
        lengths.append(lengths[-1] * step)
    return lengths


def size(text: str, option: str = "size", most: int = COUNTABLE, least: int = 1) -> int:
    """`65536`, `64k` (times 1,024), `2M`, between two others. Raises `UsageError`.

    text:   what the user wrote
    option: what errors name
    most:   largest number allowed
    least:  smallest number allowed
    """
    match = re.fullmatch(r"(\d{1,15})([kmg]?)", text.strip().lower())
    if match is None:
        raise UsageError(f"{option} {text!r} is not a whole number; write 512, or 64k for 65536")
    value = int(match[1]) << 10 * MULTIPLES.index(match[2])
    if not least <= value <= most:
        raise UsageError(f"{option} {text!r} is not between {least} and {most:,}")
    return value


def share(text: str, option: str, most: float = 1.0) -> float:
    """The share that `0.02` or `2%` means, from 0 to `most`. Raises `UsageError`."""
    value = text.strip()
    percent = text.strip().endswith("%")
    try:
        number = float(value.removesuffix("%")) / (100 if percent else 1)
    except ValueError:
        number = nan
    if not 0 <= number <= most:
        raise UsageError(f"{option} {text!r} is not a share from 0 to {most:g}; write 0.02 or 2%")
    return number


def word(text: str, option: str, words: type[Word]) -> Word:
    """The member of an enumeration that has this name. Raises `UsageError`."""
    if text not in set(words):
        raise UsageError(f"{option} {text!r} is not {' or '.join(words)}")
    return words(text)


def words_of(text: str) -> tuple[str, ...]:
    """The words of a list, each once."""
    return tuple(dict.fromkeys(word.strip() for word in text.split(",")))


def memory(text: str, option: str = "memory") -> int:
    """Bytes of `8GiB`, `512MiB`, `1.5g`; a unit is a power of 1,024. Raises `UsageError`."""
    match = re.fullmatch(rf"{NUMBER}([kmgt])(?:i?b)?", text.strip().lower())
    if match is None or float(match[1]) <= 0:
        raise UsageError(f"{option} {text!r} is not a size of memory; write 8GiB or 512MiB")
    return int(float(match[1]) * 1024 ** MULTIPLES.index(match[2]))


def seconds(text: str, option: str = "time") -> float | None:
    """`90s`, `10m`, `1.5h`, `45`; `none` is None. Raises `UsageError`."""
    text = text.strip().lower()
    if text == "none":
        return None
    match = re.fullmatch(rf"{PRECISE}(ms|s|m|h|)", text)
    if match is None or float(match[1]) <= 0:
        raise UsageError(f"{option} {text!r} is not a time above 0; write 90s, 10m or none")
    return float(match[1]) * dict(SECONDS)[match[2]]


def shard(text: str) -> Shard:
    """`2/6`. Raises `UsageError`."""
    match = re.fullmatch(r"(\d{1,7})/(\d{1,7})", text.strip())
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(f"--shard {text!r} is not I/N with I from 1 to N; write 2/6")
    return Shard(int(match[1]), int(match[2]))
