"""The symbols of printed complexities in words, with the values that a sweep used."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from attnbench import units
from attnbench.records import CardFacts, Option
from attnbench.render.grid import Table
from attnbench.render.printed import printed_costs

if TYPE_CHECKING:
    from attnbench.analysis.summary import Frame

# a letter, with its index
SYMBOL = re.compile(r"[A-Za-zα-ω](?:_[a-z]+)?")
LENGTH, WIDTH = "sequence length", "width"
GENERAL: Mapping[str, str] = MappingProxyType({
    "N": LENGTH, "n": LENGTH, "d": WIDTH, "D": WIDTH, "d_h": WIDTH,
})  # fmt: skip

CardSymbols = Mapping[str, Sequence[str]]  # the meaning of each, and options that set it


def explained(table: Table, cases: "Frame", cards: Sequence[CardFacts]) -> Table:
    """A table of complexities, `complexity` or a paper's, with its symbols below it."""
    swept = dict.fromkeys(cases["mechanism"])
    if table.name == "complexity":
        formulas = [(card.mechanism, card.complexity) for card in cards]
    else:
        formulas = [(c.mechanism, c.printed) for c in printed_costs() if c.table == table.name]
    known = [(mechanism, formula) for mechanism, formula in formulas if mechanism in swept]
    legend = "; ".join(dict.fromkeys(_legend(known, cases, cards)))
    return replace(table, note=f"Symbols: {legend}. {table.note}") if legend else table


def meanings(formula: str, by_symbol: CardSymbols, options: Mapping[str, Option]) -> Iterator[str]:
    """What each symbol of a mechanism's complexity means: `m: landmarks (landmarks=64)`."""
    for symbol in symbols(formula):
        if symbol in by_symbol:
            meaning, *names = by_symbol[symbol]
            values = _set(names, options)
            yield f"{symbol}: {meaning}{f' ({values})' if values else ''}"
        elif symbol in GENERAL:
            yield f"{symbol}: {GENERAL[symbol]}"


def symbols(formula: str) -> list[str]:
    """The symbols of a formula: `O(N·d_s + n log n)` has N, d_s and n; words have none."""
    return list(dict.fromkeys(SYMBOL.findall(re.sub(r"O\(|[a-z]{3,}", " ", formula))))


def _legend(
    formulas: Sequence[tuple[str, str]], cases: "Frame", cards: Sequence[CardFacts]
) -> Iterator[str]:
    """`N: sequence length (128 to 512)`, and so on; then the symbols of single mechanisms."""
    every = [(name, symbol) for name, formula in formulas for symbol in symbols(formula)]
    ends = units.between(min(cases["seq_len"]), max(cases["seq_len"]))
    widths = " and ".join(f"{width}" for width in sorted(set(cases["width"])))
    by_card = {c.mechanism: c.symbols for c in cards}
    for name, symbol in every:
        if symbol in GENERAL and symbol not in by_card.get(name, {}):
            value = ends if GENERAL[symbol] == LENGTH else widths
            yield f"{symbol}: {GENERAL[symbol]} ({value})"
    for name, symbol in every:
        if symbol in by_card.get(name, {}):
            meaning, *options = by_card[name][symbol]
            values = " or ".join(dict.fromkeys(_values(name, options, cases, cards)))
            yield f"{symbol} of {name}: {meaning}{f' ({values})' if values else ''}"


def _values(
    name: str, options: Sequence[str], cases: "Frame", cards: Sequence[CardFacts]
) -> Iterator[str]:
    """`window=16, global_tokens=1` for each setting of the mechanism in the sweep."""
    defaults = next((card.options for card in cards if card.mechanism == name), {})
    for text in dict.fromkeys(cases.loc[cases["mechanism"] == name, "options"]):
        given = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
        yield _set(options, {**defaults, **given})


def _set(names: Sequence[str], options: Mapping[str, Option]) -> str:
    """`window=16, global_tokens=1`: the options of these names that have a value."""
    return ", ".join(f"{name}={options[name]}" for name in names if options.get(name))
