"""What a model keeps of its context in decoding: bytes, from the sizes of its layers."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple, Self

LAST = 1 << 53  # no context is longer


class Part(NamedTuple):
    """So many numbers for each entry of a cache; one entry covers `every` so many tokens.

    No more than `most` entries are kept. With `rest`, entries are instead the tokens since the last
    whole group of `every`. `item_bytes` is the size of a number, None for the cache's own type.
    """

    numbers: int
    every: int = 1
    most: int | None = None
    rest: bool = False
    item_bytes: int | None = None

    def entries(self, length: int) -> int:
        """Entries after so many tokens."""
        if self.rest:
            return length % self.every
        return min(length // self.every, LAST if self.most is None else self.most)

    def peak(self, length: int) -> int:
        """The most entries of any context up to this length."""
        return min(length, self.every - 1) if self.rest else self.entries(length)

    @property
    def grows(self) -> bool:
        """Whether a longer context has more entries without end."""
        return self.most is None and not self.rest


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A layer: its kind in words, what its equations read again, and what transformers 5 keeps.

    `full`: the numbers per token that full attention would keep in its place, None if unknown.
    """

    kind: str
    needed: tuple[Part, ...]
    transformers: tuple[Part, ...]
    full: int | None


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is asked of a model: contexts, bytes of a number, sequences, and a limit in bytes."""

    lengths: tuple[int, ...]
    item_bytes: int
    batch: int = 1
    memory: int | None = None


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Bytes that some layers keep: at each length asked for, and per token of a long context.

    From `break_even` tokens on full attention keeps more, None if it never does. `longest` is the
    longest context that fits the memory, to less than a pool of tokens and never too long; infinite
    if any fits, None if no memory is given.
    """

    per_token: float
    at: tuple[int, ...]
    break_even: int | None
    longest: float | None

    @classmethod
    def of(cls, parts: Sequence[Part], full: int | None, asked: Asked) -> Self:
        """What the parts take; full attention would keep `full` numbers per token."""
        pairs = [
            (count * asked.batch * part.numbers * (part.item_bytes or asked.item_bytes), part)
            for part, count in Counter(parts).items()
        ]
        slope = sum(size / part.every for size, part in pairs if part.grows)
        constant = sum(size * part.peak(LAST) for size, part in pairs if not part.grows)
        steeper = (full or 0) * asked.batch * asked.item_bytes - slope

        def peak(length: int) -> int:
            return sum(size * part.peak(length) for size, part in pairs)

        longest = None
        if asked.memory is not None:
            fitting = bisect_right(range(1, LAST), asked.memory, key=peak)
            longest = inf if fitting == LAST - 1 else fitting
        return cls(
            per_token=slope,
            at=tuple(sum(size * part.entries(n) for size, part in pairs) for n in asked.lengths),
            break_even=int(constant // steeper) + 1 if steeper > 0 else None,
            longest=longest,
        )


@dataclass(frozen=True)
class Row:
    """What so many layers of one kind keep, or all of them."""

    kind: str
    layers: int
    needed: Kept
    transformers: Kept


@dataclass(frozen=True, kw_only=True)
class Context:
    """What a model keeps by kind of layer and in all, and what full attention would in its place.

    `full` is None where the size of full attention is unknown. `times` are its bytes in those that
    are needed, at each length.
    """

    kinds: tuple[Row, ...]
    whole: Row
    full: Kept | None
    times: tuple[float, ...]

    @property
    def rows(self) -> tuple[Row, ...]:
        """Each kind of layer, and all layers."""
        return *self.kinds, self.whole


def context(layers: Sequence[Layer], asked: Asked) -> Context:
    """What the layers keep; kinds are in the order in which each first appears."""
    kinds = dict.fromkeys(layer.kind for layer in layers)
    alike = {kind: [layer for layer in layers if layer.kind == kind] for kind in kinds}
    alone = replace(asked, memory=None)  # no kind has all the memory
    whole, full = _row("all layers", layers, asked), _full(layers)
    kept = Kept.of([Part(full)], full, asked) if full else None
    pairs = zip(kept.at if kept else (), whole.needed.at, strict=False)
    return Context(
        kinds=tuple(_row(kind, group, alone) for kind, group in alike.items()),
        whole=whole,
        full=kept,
        times=tuple(full / needed if needed else inf for full, needed in pairs),
    )


def _row(kind: str, layers: Sequence[Layer], asked: Asked) -> Row:
    needed = [part for layer in layers for part in layer.needed]
    kept = [part for layer in layers for part in layer.transformers]
    both = (Kept.of(parts, _full(layers), asked) for parts in (needed, kept))
    return Row(kind, len(layers), *both)


def _full(layers: Iterable[Layer]) -> int | None:
    sizes = [layer.full for layer in layers]
    return None if None in sizes else sum(size for size in sizes if size)
