"""The bytes that a model keeps of its context in decoding, from the sizes of its layers."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

LAST = 1 << 53  # no context is longer
ALL = "all layers"
INSTEAD = "full attention in each"


class CachePart(NamedTuple):
    """Part of a cache: `numbers` for each entry, and one entry for every `stride` tokens.

    At most `max_entries` are kept. With `remainder_only`, entries are instead the tokens since the
    last whole group of `stride`. `item_bytes` is the size of a number, None for the cache's own
    type.
    """

    numbers: int
    stride: int = 1
    max_entries: int = LAST
    remainder_only: bool = False
    item_bytes: int | None = None

    def entries(self, length: int, peak: bool = False) -> int:
        """The number of entries after `length` tokens; if `peak`, the most up to there."""
        if self.remainder_only:
            return min(length, self.stride - 1) if peak else length % self.stride
        return min(length // self.stride, self.max_entries)


class Layer(NamedTuple):
    """A layer: a name of its kind, and what its equations need of the context.

    `full`: the numbers per token that full attention would keep in its place, None if unknown.
    """

    kind: str
    parts: tuple[CachePart, ...]
    full: int | None


@dataclass(frozen=True, kw_only=True)
class ContextQuery:
    """What is asked of a model: contexts, bytes of a number, and a limit in bytes.

    The `memory` holds the `weights` too, where their bytes are known.
    """

    lengths: tuple[int, ...]
    item_bytes: int
    memory: int | None = None
    weights: int | None = None


class BytesRow(NamedTuple):
    """Bytes that `layers` layers keep: at each length asked for, and per token of a long context.

    `longest` is the longest context that fits the memory, short by less than a pool of tokens at
    most; infinite if any fits, None if no memory is given.
    """

    kind: str
    layers: int
    per_token: float
    at: tuple[int, ...]
    longest: float | None


def rows(layers: Sequence[Layer], query: ContextQuery) -> list[BytesRow]:
    """Each kind of layer as they first appear; all layers, also with numbers of 8 bits; full
    attention in place of each, and the weights, where their sizes are known.

    Recurrent states keep their type in 8 bits too. No single kind has all the memory.
    """
    left_bytes = None if query.memory is None else query.memory - (query.weights or 0)
    layers_by_kind = {kind: [x for x in layers if x.kind == kind] for kind, *_ in layers}
    bytes_rows = [
        _row(kind, layers_of_kind, query, None) for kind, layers_of_kind in layers_by_kind.items()
    ]
    bytes_rows.append(_row(ALL, layers, query, left_bytes))
    bytes_rows.append(_row(f"{ALL}, 8 bits", layers, replace(query, item_bytes=1), left_bytes))
    full = [CachePart(layer.full) for layer in layers if layer.full]
    if full and not any(layer.full is None for layer in layers):
        instead = [Layer("", (part,), None) for part in full]
        row = _row(INSTEAD, instead, query, left_bytes)
        bytes_rows.append(row._replace(layers=len(layers)))
    if query.weights is not None:
        bytes_rows.append(
            BytesRow("weights", len(layers), 0.0, (query.weights,) * len(query.lengths), None)
        )
    return bytes_rows


def _row(kind: str, layers: Iterable[Layer], query: ContextQuery, memory: int | None) -> BytesRow:
    layers = list(layers)
    parts = Counter(part for layer in layers for part in layer.parts)
    sizes = {
        part: count * part.numbers * (part.item_bytes or query.item_bytes)
        for part, count in parts.items()
    }

    def bytes_held(length: int, peak: bool = False) -> int:
        return sum(size * part.entries(length, peak) for part, size in sizes.items())

    longest = None
    if memory is not None:
        fitting = bisect_right(
            range(1, LAST), memory, key=lambda length: bytes_held(length, peak=True)
        )
        longest = inf if fitting == LAST - 1 else fitting
    endless = {p: s for p, s in sizes.items() if p.max_entries == LAST and not p.remainder_only}
    per_token = sum(size / part.stride for part, size in endless.items())
    return BytesRow(kind, len(layers), per_token, tuple(map(bytes_held, query.lengths)), longest)
