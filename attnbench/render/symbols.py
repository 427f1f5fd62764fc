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


def explained(table: Table, cases: "Frame", cards: Sequence[CardFacts]) -> Table:
    """A table of complexities, `complexity` or a paper's, with its symbols below it."""
    if table.name == "complexity":
        formulas = [(card.mechanism, card.complexity) for card in cards]
    else:
        formulas = [(c.mechanism, c.printed) for c in printed_costs() if c.table == table.name]
    sizes = {
        LENGTH: units.between(min(cases["seq_len"]), max(cases["seq_len"])),
        WIDTH: " and ".join(map(str, sorted(set(cases["width"])))),
    }
    facts = {card.mechanism: card for card in cards}
    settings = cases.groupby("mechanism")["options"].unique()
    general, own = [], []
    for name, formula in formulas:
        by_symbol = facts[name].symbols if name in facts else {}
        defaults = facts[name].options if name in facts else {}
        for text in settings.get(name, ()):
            given = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
            for symbol, meaning in meanings(formula, by_symbol, {**defaults, **given}):
                if symbol in by_symbol:
                    own.append(f"{symbol} of {name}: {meaning}")
                else:
                    general.append(f"{symbol}: {meaning} ({sizes[meaning]})")
    legend = "; ".join(dict.fromkeys(general + own))
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
