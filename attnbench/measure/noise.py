"""Whether an output responds to its input beside noise that cannot be drawn again.

A mechanism may draw from a generator of its own, or from the system. Then outputs differ for the
same input, and only means over repeats can be compared. An input and a changed one are passed in
the order A B B A, so that what drifts from call to call cancels, and the square of the mean change
is estimated by products of independent repeats: noise adds nothing to it on average.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from attnbench.measure.called import Called
from attnbench.measure.inputs import Inputs, elsewhere

TOKENS, CHANNELS = -2, -1
REPEATS, MOST_REPEATS = 4, 16  # pairs of calls: where it responds, and before it is said not to
GROUPS = 8  # a group is a block of an eighth of the places, or every eighth place
SURE = 3.0  # standard errors
MOST_NUMBERS = 1 << 17  # of an output that are compared
LEAST = 0.05  # share of its part of the response to all input below which a group does not matter
SAME = 0.01  # share of the output's variation that other input must explain
IGNORED = 0.4  # share of the groups


@dataclass(frozen=True)
class Square:
    """The square of a mean change, summed over all numbers, with its standard error."""

    point: float
    error: float

    @property
    def is_seen(self) -> bool:
        """Whether it is surely above 0."""
        return self.is_above(0.0)

    def is_above(self, limit: float) -> bool:
        """Whether it is surely above a limit."""
        return self.point - SURE * self.error > limit

    def is_below(self, limit: float) -> bool:
        """Whether it is surely below a limit."""
        return self.point + SURE * self.error < limit


class Pairs:
    """By how much outputs of a changed input differ from those of an input, repeated.

    Of large outputs only the numbers at `picked` places are compared.
    """

    def __init__(self, called: Called, x: Inputs, other: Inputs, picked: Tensor) -> None:
        self.called, self.x, self.other, self.picked = called, x, other, picked
        self.changes: list[Tensor] = []

    def repeat(self, count: int) -> None:
        """Have at least so many pairs."""
        while len(self.changes) < count:
            first, second = self.x, self.other
            a, b, b2, a2 = map(self.numbers, (first, second, second, first))
            self.changes += [b - a, b2 - a2]

    def numbers(self, x: Inputs) -> Tensor:
        """Some numbers of the output, always the same ones."""
        return self.called.output(x).double().flatten()[self.picked]

    def changed(self) -> Tensor:
        """By how much the same numbers of the input differ."""
        new, old = (each[0].detach().double().flatten() for each in (self.other, self.x))
        return (new - old)[self.picked]

    def part(self, dim: int, group: Tensor) -> "Pairs":
        """The same input, and one with a group of places taken from the changed input."""
        mixed = tuple(map(elsewhere, self.x))
        with torch.no_grad():
            for each, new in zip(mixed, self.other, strict=True):
                if each.shape[dim] == self.x[0].shape[dim]:
                    each.index_copy_(dim, group, new.index_select(dim, group))
        return Pairs(self.called, self.x, mixed, self.picked)

    def square(self, less: Tensor | None = None) -> Square:
        """That of the mean change, `less` what else explains of it."""
        each = torch.stack(self.changes) - (0.0 if less is None else less)
        products = each @ each.T
        count = len(each)
        whole = float(products.sum() - products.diagonal().sum())
        rows = 2 * (products.sum(1) - products.diagonal())
        point = whole / (count * (count - 1))
        # without each pair in turn
        without = [(whole - float(row)) / ((count - 1) * (count - 2)) for row in rows]
        mean = sum(without) / count
        spread = sum((value - mean) ** 2 for value in without)
        return Square(point, math.sqrt((count - 1) / count * spread))

    @property
    def varied(self) -> float:
        """The square of what a single change varies by, summed over all numbers."""
        each = torch.stack(self.changes)
        return float(each.var(0).sum())

    def along(self, given: Tensor) -> float:
        """The multiple of a change of the input which is nearest to that of the output."""
        mean = torch.stack(self.changes).mean(0)
        return float((mean @ given) / given.square().sum())


def signs(called: Called) -> list[str]:
    """Signs that no mean output responds to the input, or to most groups of its places."""
    x, other = called.fresh(), called.fresh()
    with torch.no_grad():  # one sequence stays, since others are not to be computed from it
        for new, old in zip(other, x, strict=True):
            new[: min(1, len(x[0]) - 1)] = old[: min(1, len(x[0]) - 1)]
    numbers = called.output(x).numel()
    whole = Pairs(called, x, other, torch.randperm(numbers)[:MOST_NUMBERS])
    whole.repeat(REPEATS)
    if not whole.square().is_seen:
        whole.repeat(MOST_REPEATS)
    response = whole.square()
    if not response.is_seen and response.is_below(SAME * whole.varied):
        return ["gave the same output for other input, but for random numbers"]
    found = list[str]()
    for dim, name in ((TOKENS, "tokens"), (CHANNELS, "channels")):
        count = max(ignored(whole, dim, kind) for kind in (block, stride))
        if count:
            found.append(
                f"did not change its output, but for random numbers, when {count} of {GROUPS}"
                f" parts of its {name} were replaced"
            )
    if found or called.is_core or numbers != x[0].numel():
        return found
    return passed_on(whole)


def ignored(whole: Pairs, dim: int, kind: Callable[[int, int], Tensor]) -> int:
    """How many of `GROUPS` groups of places do not matter; 0 if too few."""
    size, silent = whole.x[0].shape[dim], 0
    if size < GROUPS:
        return 0
    for number in range(GROUPS):
        group = kind(size, number)
        pairs = whole.part(dim, group)
        pairs.repeat(REPEATS)
        least = LEAST * group.numel() / size * whole.square().point
        if not pairs.square().is_above(least):
            pairs.repeat(MOST_REPEATS)
            silent += pairs.square().is_below(least)
        if silent + GROUPS - number - 1 < IGNORED * GROUPS:
            return 0
    return silent if silent >= IGNORED * GROUPS else 0


def passed_on(whole: Pairs) -> list[str]:
    """The sign that most tokens come out as they went in, but for random numbers."""
    size, silent = whole.x[0].shape[TOKENS], 0
    if size < GROUPS:
        return []
    for number in range(GROUPS):
        group = block(size, number)
        pairs = whole.part(TOKENS, group)
        pairs.repeat(REPEATS)
        own = pairs.changed()
        a = pairs.along(own)
        a = 1.0 if abs(a - 1) < LEAST else a
        if not pairs.square(a * own).is_seen:
            pairs.repeat(MOST_REPEATS)
            whole.repeat(MOST_REPEATS)
            rest = whole.square(a * whole.changed())
            share = group.numel() / size
            limit = LEAST * share * rest.point if rest.is_seen else SAME * whole.varied
            silent += pairs.square(a * own).is_below(limit)
        if silent + GROUPS - number - 1 < IGNORED * GROUPS:
            return []
    return [
        f"passed {silent} of {GROUPS} parts of its tokens on as they were, but for a factor and"
        " random numbers"
    ]


def block(size: int, number: int) -> Tensor:
    """One of `GROUPS` parts of the places, which follow one another."""
    return torch.arange(number * size // GROUPS, (number + 1) * size // GROUPS)


def stride(size: int, number: int) -> Tensor:
    """Every eighth place from one on."""
    return torch.arange(number, size, GROUPS)
