"""The symbols of a mechanism's complexity in words, with the values of its options."""

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from attnbench.records import Option

# a letter, with its index
SYMBOL = re.compile(r"[A-Za-zα-ω](?:_[a-z]+)?")
GENERAL: Mapping[str, str] = MappingProxyType(
    {**dict.fromkeys(("N", "n"), "sequence length"), **dict.fromkeys(("d", "D", "d_h"), "width")}
)


def meanings(
    formula: str, by_symbol: Mapping[str, Sequence[str]], options: Mapping[str, Option]
) -> Iterator[tuple[str, str]]:
    """Each symbol of a mechanism's complexity, and `landmarks (landmarks=64)`: what it means.

    `by_symbol` has the meaning of each, and the options that set it.
    """
    for symbol in symbols(formula):
        if symbol in by_symbol:
            meaning, *names = by_symbol[symbol]
            values = ", ".join(f"{name}={options[name]}" for name in names if options.get(name))
            yield symbol, f"{meaning} ({values})" if values else meaning
        elif symbol in GENERAL:
            yield symbol, GENERAL[symbol]


def symbols(formula: str) -> list[str]:
    """The symbols of a formula: `O(N·d_s + n log n)` has N, d_s and n; words have none."""
    return list(dict.fromkeys(SYMBOL.findall(re.sub(r"O\(|[a-z]{3,}", " ", formula))))
