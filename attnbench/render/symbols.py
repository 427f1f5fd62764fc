"""The symbols of printed complexities in words, with the values that a sweep used."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from attnbench.records import CardFacts, Option
from attnbench.render.grid import Table
from attnbench.render.growth_tables import printed_costs

if TYPE_CHECKING:
    from attnbench.analysis.summary import Frame

# a letter, with its index
SYMBOL = re.compile(r"[A-Za-zα-ω](?:_[a-z]+)?")
GENERAL: Mapping[str, str] = MappingProxyType(
    {**dict.fromkeys(("N", "n"), "sequence length"), **dict.fromkeys(("d", "D", "d_h"), "width")}
)


def explained(table: Table, cases: "Frame", cards: Sequence[CardFacts]) -> Table:
    """A table of complexities, `complexity` or a paper's, with its symbols below it."""
    if table.name == "complexity":
        formulas = [(card.mechanism, card.complexity) for card in cards]
    else:
        formulas = [(c.mechanism, c.printed) for c in printed_costs() if c.table == table.name]
    facts = {card.mechanism: card for card in cards}
    settings = cases.groupby("mechanism")["options"].unique()
    found: dict[str, bool] = {}  # whether a mechanism has its own meaning of the symbol
    for name, formula in formulas:
        for text in settings.get(name, ()) if name in facts else ():
            options = {**facts[name].options, **dict(re.findall(r"(\w+)=([^,]*)", text))}
            for symbol, meaning in meanings(formula, facts[name].symbols, options):
                own = symbol in facts[name].symbols
                found[f"{symbol} of {name}: {meaning}" if own else f"{symbol}: {meaning}"] = own
    legend = "; ".join(sorted(found, key=lambda line: found[line]))
    return replace(table, note=f"Symbols: {legend}. {table.note}") if legend else table


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
