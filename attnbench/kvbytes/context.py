"""The bytes that a model keeps of its context in decoding, from the sizes of its layers."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple, Self

LAST = 1 << 53  # no context is longer


class CachePart(NamedTuple):
    """Part of a cache: `numbers` for each entry, and one entry for every `stride` tokens.

    At most `max_entries` are kept. With `remainder_only`, entries are instead the tokens since the
    last whole group of `stride`. `item_bytes` is the size of a number, None for the cache's own
    type.
    """

    numbers: int
    stride: int = 1
    max_entries: int | None = None
    remainder_only: bool = False
    item_bytes: int | None = None

    def entries(self, length: int) -> int:
        """The number of entries after `length` tokens."""
        if self.remainder_only:
            return length % self.stride
        return min(length // self.stride, LAST if self.max_entries is None else self.max_entries)

    def peak(self, length: int) -> int:
        """The most entries of any context up to this length."""
        return min(length, self.stride - 1) if self.remainder_only else self.entries(length)

    @property
    def grows(self) -> bool:
        """Whether the entries grow with the context without bound."""
        return self.max_entries is None and not self.remainder_only


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A layer: a name of its kind, and what its equations need of the context.

    `full`: the numbers per token that full attention would keep in its place, None if unknown.
    """

    kind: str
    parts: tuple[CachePart, ...]
    full: int | None


@dataclass(frozen=True, kw_only=True)
class ContextQuery:
    """What is asked of a model: contexts, bytes of a number, sequences, and a limit in bytes."""

    lengths: tuple[int, ...]
    item_bytes: int
    batch: int = 1
    memory: int | None = None


@dataclass(frozen=True, kw_only=True)
class ContextBytes:
    """Bytes that some layers keep: at each length asked for, and per token of a long context.

    `longest` is the longest context that fits the memory, short by less than a pool of tokens at
    most; infinite if any fits, None if no memory is given.
    """

    per_token: float
    at: tuple[int, ...]
    longest: float | None

    @classmethod
    def of(cls, parts: Sequence[CachePart], query: ContextQuery) -> Self:
        """What the parts take."""
        pairs = [
            (count * query.batch * part.numbers * (part.item_bytes or query.item_bytes), part)
            for part, count in Counter(parts).items()
        ]

        def peak(length: int) -> int:
            return sum(size * part.peak(length) for size, part in pairs)

        longest = None
        if query.memory is not None:
            fitting = bisect_right(range(1, LAST), query.memory, key=peak)
            longest = inf if fitting == LAST - 1 else fitting
        return cls(
            per_token=sum(size / part.stride for size, part in pairs if part.grows),
            at=tuple(sum(size * part.entries(n) for size, part in pairs) for n in query.lengths),
            longest=longest,
        )


@dataclass(frozen=True)
class LayerBytes:
    """What the layers of one kind keep, or all layers; `layers` is their number."""

    kind: str
    layers: int
    needed: ContextBytes


@dataclass(frozen=True, kw_only=True)
class Context:
    """What a model keeps by kind of layer and in all, and what full attention would in its place.

    `full` is None where the size of full attention is unknown. `times` are its bytes divided by
    those that are needed, at each length.
    """

    kinds: tuple[LayerBytes, ...]
    whole: LayerBytes
    full: ContextBytes | None
    times: tuple[float, ...]

    @property
    def rows(self) -> tuple[LayerBytes, ...]:
        """Each kind of layer, and all layers."""
        return *self.kinds, self.whole


def context(layers: Sequence[Layer], query: ContextQuery) -> Context:
    """What the layers keep; kinds are in the order in which each first appears."""
    kinds = dict.fromkeys(layer.kind for layer in layers)
    alike = {kind: [layer for layer in layers if layer.kind == kind] for kind in kinds}
    alone = replace(query, memory=None)  # no kind has all the memory
    whole, full = _row("all layers", layers, query), _full(layers)
    kept = ContextBytes.of([CachePart(full)], query) if full else None
    pairs = zip(kept.at if kept else (), whole.needed.at, strict=False)
    return Context(
        kinds=tuple(_row(kind, group, alone) for kind, group in alike.items()),
        whole=whole,
        full=kept,
        times=tuple(full / needed if needed else inf for full, needed in pairs),
    )


def _row(kind: str, layers: Sequence[Layer], query: ContextQuery) -> LayerBytes:
    parts = [part for layer in layers for part in layer.parts]
    return LayerBytes(kind, len(layers), ContextBytes.of(parts, query))


def _full(layers: Iterable[Layer]) -> int | None:
    sizes = [layer.full for layer in layers]
    return None if None in sizes else sum(size for size in sizes if size)
