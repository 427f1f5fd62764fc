"""The symbols of printed complexities in words, with the values that a sweep used."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from attnbench import units
from attnbench.analysis.summary import Frame
from attnbench.claims.published import printed_costs
from attnbench.records import CardFacts
from attnbench.render.grid import Table

# a letter, with its index
SYMBOL = re.compile(r"[A-Za-zα-ω](?:_[a-z]+)?")
LENGTH, WIDTH = "sequence length", "width"
GENERAL: Mapping[str, str] = MappingProxyType({
    "N": LENGTH, "n": LENGTH, "d": WIDTH, "D": WIDTH, "d_h": WIDTH,
})  # fmt: skip

SEEN, MEMORY = "tokens that a query attends to", "tokens of memory"
POINTS, LANDMARKS, BLOCK = "inducing points", "landmarks", "tokens of a block"
# those that papers print of mechanisms: the meaning of each, and the options that set it
OWN: Mapping[str, Mapping[str, tuple[str, ...]]] = MappingProxyType({
    "bigbird": {"K": (SEEN, "block", "global_tokens", "random_tokens")},
    "blockwise": {"n": ("blocks", "blocks")},
    "compressive_transformer": {
        "L": ("tokens of a segment", "segment"), "M": (MEMORY, "memory"),
        "C": ("slots of compressed memory", "compressed"),
    },
    "etc": {
        "G": ("global tokens", "global_tokens"), "n_g": ("global tokens", "global_tokens"),
        "r": ("radius of the band", "radius"),
    },
    "image_transformer": {
        "l_q": ("tokens of a query block", "block"), "l_m": (MEMORY, "memory"),
        "m": (MEMORY, "memory"),
    },
    "linformer": {"ε": ("error of the projection, which sets the rank", "rank")},
    "local": {"b": (BLOCK, "block")},
    "longformer": {
        "K": (SEEN, "window", "global_tokens"), "k": ("window", "window"),
        "m": ("global tokens", "global_tokens"),
    },
    "mamba2": {"s": ("size of the state", "state")},
    "memory_compressed": {
        "s": ("factor of compression", "compression"), "n_c": ("compressed length", "compression"),
    },
    "nystromformer": {"m": (LANDMARKS, "landmarks"), "k": (LANDMARKS, "landmarks")},
    "performer": {"m": ("random features", "features")},
    "poolingformer": {"w": ("windows of its two levels", "window", "pool_window")},
    "set_transformer": {"m": (POINTS, "points"), "k": (POINTS, "points")},
    "sinkhorn": {"M": (BLOCK, "block"), "b": (BLOCK, "block")},
    "sliding_window": {"w": ("window", "window")},
    "smart_bird": {"K": (SEEN, "keys"), "d_s": ("width of the sketch", "sketch_width")},
    "sparse_transformer": {"K": (SEEN, "stride")},
    "transformer_xl": {"L": ("tokens of a segment", "segment"), "M": (MEMORY, "memory")},
})  # fmt: skip


def explained(table: Table, cases: Frame, cards: Sequence[CardFacts]) -> Table:
    """A table of complexities, `complexity` or a paper's, with its symbols below it."""
    swept = dict.fromkeys(cases["mechanism"])
    if table.name == "complexity":
        formulas = [(card.mechanism, card.complexity) for card in cards]
    else:
        formulas = [(c.mechanism, c.printed) for c in printed_costs() if c.table == table.name]
    known = [(mechanism, formula) for mechanism, formula in formulas if mechanism in swept]
    legend = "; ".join(dict.fromkeys(_legend(known, cases, cards)))
    return replace(table, note=f"Symbols: {legend}. {table.note}") if legend else table


def symbols(formula: str) -> list[str]:
    """The symbols of a formula: `O(N·d_s + n log n)` has N, d_s and n."""
    return list(dict.fromkeys(SYMBOL.findall(re.sub(r"O\(|log", " ", formula))))


def _legend(
    formulas: Sequence[tuple[str, str]], cases: Frame, cards: Sequence[CardFacts]
) -> Iterator[str]:
    """`N: sequence length (128 to 512)`, and so on; then the symbols of single mechanisms."""
    every = [(name, symbol) for name, formula in formulas for symbol in symbols(formula)]
    lengths = sorted({units.length(n): n for n in cases["seq_len"]}.items(), key=lambda n: n[1])
    ends = " to ".join(dict.fromkeys((lengths[0][0], lengths[-1][0])))
    widths = " and ".join(f"{width}" for width in sorted(set(cases["width"])))
    own = {card.mechanism: {**OWN.get(card.mechanism, {}), **card.symbols} for card in cards}
    for name, symbol in every:
        if symbol in GENERAL and symbol not in own.get(name, {}):
            value = ends if GENERAL[symbol] == LENGTH else widths
            yield f"{symbol}: {GENERAL[symbol]} ({value})"
    for name, symbol in every:
        if symbol in own.get(name, {}):
            meaning, *options = own[name][symbol]
            values = " or ".join(dict.fromkeys(_values(name, options, cases, cards)))
            yield f"{symbol} of {name}: {meaning}{f' ({values})' if values else ''}"


def _values(
    name: str, options: Sequence[str], cases: Frame, cards: Sequence[CardFacts]
) -> Iterator[str]:
    """`window=16, global_tokens=1` for each setting of the mechanism in the sweep."""
    defaults = next((card.options for card in cards if card.mechanism == name), {})
    for text in dict.fromkeys(cases.loc[cases["mechanism"] == name, "options"]):
        given = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
        chosen = {option: given.get(option, defaults.get(option)) for option in options}
        yield ", ".join(f"{option}={value}" for option, value in chosen.items() if value)
