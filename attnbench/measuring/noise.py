"""Whether an output responds to its input beside noise that cannot be drawn again.

A mechanism may draw from a generator of its own, or from the system. Then outputs differ for the
same input, and only means over repeats can be compared. An input and a changed one are passed in
the order A B B A, so that what drifts from call to call cancels, and the square of the mean change
is estimated by products of independent repeats: noise adds nothing to it on average.

Each question is decided in stages. A stage has more repeats than the one before, and decides only
what is sure by then; what none decides is said to be unknown. All stages together decide wrongly,
where noise is normally distributed, in at most one question of a thousand.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from operator import attrgetter
from types import MappingProxyType

import torch
from torch import Tensor

from attnbench.measuring.caller import Caller
from attnbench.measuring.inputs import Inputs, copy_elsewhere, has_places

SEQUENCES = 0
TOKENS = -2
CHANNELS = -1
# Pairs of calls of each stage, with how many standard errors are sure: what Student's distribution
# exceeds in one of 5,000 cases, as there are five stages.
STAGES: Mapping[int, float] = MappingProxyType({6: 8.37, 16: 4.53, 64: 3.74, 256: 3.59, 1024: 3.56})
LONGEST_S = 20.0  # that the repeats of a mechanism may take; what is unknown by then stays so
GROUPS = 8  # a group is a block of an eighth of the places, or every eighth place
MOST_NUMBERS = 1 << 13  # of an output that are compared
LEAST = 0.05  # share of its part of the response to all input below which a group does not matter
SAME = 0.01  # share of the output's variation that other input must explain
IGNORED = 0.4  # share of the groups
NAMES = MappingProxyType({SEQUENCES: "sequences", TOKENS: "tokens", CHANNELS: "channels"})


class Decision(Enum):
    """Whether something is above a limit."""

    ABOVE = auto()
    BELOW = auto()
    UNKNOWN = auto()


@dataclass(frozen=True)
class Square:
    """The square of a mean change, summed over all numbers, with its standard error.

    A value is sure if it is beyond a limit by so many of these errors: `sure_errors`.
    """

    point: float
    error: float
    sure_errors: float

    def decide(self, above: float, below: float) -> Decision:
        """Whether it is surely above the first limit, or else surely below the second."""
        if self.point - self.sure_errors * self.error > above:
            return Decision.ABOVE
        if self.point + self.sure_errors * self.error < below:
            return Decision.BELOW
        return Decision.UNKNOWN


class Patience:
    """Until when further repeats are made."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.end_s = clock, clock() + LONGEST_S

    @property
    def has_ended(self) -> bool:
        """Whether no stage begins any more."""
        return self.clock() > self.end_s


class Pairs:
    """By how much outputs of a changed input differ from those of an input, repeated.

    Of large outputs only the numbers at `indices` places are compared.

    caller:   calls the mechanism
    x:        the input
    other_x:  the changed input, of the same shapes
    indices:  of the numbers of the flattened output that are compared
    patience: until when further repeats are made
    """

    def __init__(
        self, caller: Caller, x: Inputs, other_x: Inputs, indices: Tensor, patience: Patience
    ) -> None:
        self.caller = caller
        self.x = x
        self.other_x = other_x
        self.indices = indices
        self.patience = patience
        self.changes: list[Tensor] = []

    def decide(self, question: Callable[["Pairs"], Decision]) -> Decision:
        """The answer to a question, asked after each stage until it is known."""
        for count in STAGES:
            if self.changes and self.patience.has_ended:
                break
            self.repeat(count)
            if (decision := question(self)) is not Decision.UNKNOWN:
                return decision
        return Decision.UNKNOWN

    def repeat(self, count: int) -> None:
        """Have at least so many pairs."""
        while len(self.changes) < count:
            first = self.x
            second = self.other_x
            a, b, b2, a2 = map(self.numbers, (first, second, second, first))
            self.changes += [b - a, b2 - a2]

    def numbers(self, x: Inputs) -> Tensor:
        """Some numbers of the output, always the same ones."""
        return self.caller.output(x).flatten()[self.indices].double()

    def input_change(self) -> Tensor:
        """By how much the same numbers of the input differ."""
        new, old = (each[0].detach().double().flatten() for each in (self.other_x, self.x))
        return (new - old)[self.indices]

    def part_of(self, dim: int, group: Tensor) -> "Pairs":
        """The same input, and one with a group of places taken from the changed input."""
        mixed = tuple(map(copy_elsewhere, self.x))
        with torch.no_grad():
            for target, source in zip(mixed, self.other_x, strict=True):
                if has_places(target, self.x[0], dim):
                    places = group.to(target.device)
                    target.index_copy_(dim, places, source.index_select(dim, places))
        return Pairs(self.caller, self.x, mixed, self.indices, self.patience)

    def square(self, explained: Tensor | None = None) -> Square:
        """The square of the mean change of the output, less what is `explained` of it already.

        Its error is that without each pair in turn, and that of products of noise alone, which is
        what remains where the mean change is nothing.
        """
        changes = torch.stack(self.changes) - (0.0 if explained is None else explained)
        products = changes @ changes.T
        count = len(changes)
        diagonal = products.diagonal()
        cross_sum = float(products.sum() - diagonal.sum())
        rows = 2 * (products.sum(1) - diagonal)
        point = cross_sum / (count * (count - 1))
        without = (cross_sum - rows) / ((count - 1) * (count - 2))
        spread = float((without - without.mean()).square().sum()) * (count - 1) / count
        square_mean = float(products.square().sum() - diagonal.square().sum()) / (
            count * (count - 1)
        )
        of_noise = 2 * max(0.0, square_mean - point**2) / (count * (count - 1))
        sure_errors = next(errors for least, errors in STAGES.items() if count <= least)
        return Square(point, math.sqrt(spread + of_noise), sure_errors)

    @property
    def variation(self) -> float:
        """The square of what a single change varies by, summed over all numbers."""
        changes = torch.stack(self.changes)
        return float(changes.var(0).sum())

    def nearest_multiple(self, change: Tensor) -> float:
        """The multiple of a change of the input which is nearest to that of the output."""
        mean = torch.stack(self.changes).mean(0)
        return float((mean @ change) / change.square().sum())


@dataclass
class Signs:
    """What was seen: signs that make a series suspect, and what could not be told."""

    suspect_signs: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Count:
    """Of `of` groups of places, how many do not matter, and of how many that is unknown."""

    silent: int
    unknown: int
    of: int

    @property
    def is_sign(self) -> bool:
        """Whether so many do not matter that it is suspect."""
        return self.silent > 0 and self.silent >= IGNORED * self.of

    @property
    def may_be_sign(self) -> bool:
        """Whether it would be one if those that are unknown do not matter."""
        return self.silent + self.unknown > 0 and self.silent + self.unknown >= IGNORED * self.of


def signs(caller: Caller, patience: Patience | None = None) -> Signs:
    """Signs that no mean output responds to the input, or to most groups of its places."""
    x = caller.new_input()
    other_x = caller.new_input()
    shared_sequences = min(1, len(x[0]) - 1)
    with torch.no_grad():  # one sequence stays, since others are not to be computed from it
        for new, old in zip(other_x, x, strict=True):
            new[:shared_sequences] = old[:shared_sequences]
    y = caller.output(x)
    indices = torch.randperm(y.numel())[:MOST_NUMBERS]
    all_pairs = Pairs(caller, x, other_x, indices, patience or Patience())
    match all_pairs.decide(responds):
        case Decision.BELOW:
            return Signs(["gave the same output for other input, but for random numbers"])
        case Decision.UNKNOWN:
            return Signs(unknown=[unknown_text("its input")])
    suspect_signs = list[str]()
    open_questions = list[str]()
    for dim, name in NAMES.items():
        counts = [
            count_ignored(all_pairs, dim, shared_sequences, grouping)
            for grouping in (block, stride)
        ]
        silent = [count for count in counts if count.is_sign]
        if silent:
            most = max(silent, key=attrgetter("silent"))
            suspect_signs.append(
                f"did not change its output, but for random numbers, when {most.silent} of"
                f" {most.of} parts of its {name} were replaced"
            )
        elif any(count.may_be_sign for count in counts):
            open_questions.append(unknown_text(f"all of its {name}"))
    if suspect_signs or caller.is_core or y.shape != x[0].shape:
        return Signs(suspect_signs, open_questions)
    count = count_passed_on(all_pairs)
    if count.is_sign:
        suspect_signs.append(
            f"passed {count.silent} of {count.of} parts of its tokens on as they were, but for a"
            " factor and random numbers"
        )
    return Signs(suspect_signs, open_questions)


def responds(all_pairs: Pairs) -> Decision:
    """Whether the output responds to other input."""
    return all_pairs.square().decide(above=0.0, below=SAME * all_pairs.variation)


def unknown_text(part: str) -> str:
    """That it cannot be told whether the output responds to this."""
    return f"varies by random numbers, beside which its response to {part} cannot be told"


def count_ignored(
    all_pairs: Pairs, dim: int, shared_sequences: int, grouping: Callable[[int, int, int], Tensor]
) -> Count:
    """How many groups of places do not matter.

    Sequences that both inputs share are not among them.

    all_pairs:        the input beside one in which everything is drawn anew
    dim:              the dimension of the places, as in `NAMES`
    shared_sequences: number of first sequences that both inputs share
    grouping:         places of one group: from their number, the group's, and how many groups
    """
    offset = shared_sequences if dim == SEQUENCES else 0
    size = all_pairs.x[0].shape[dim] - offset
    groups = min(GROUPS, size) if dim == SEQUENCES else GROUPS
    if size < groups or groups < 2:
        return Count(0, 0, 0)

    def matters(pairs: Pairs, share: float) -> Decision:
        all_pairs.repeat(len(pairs.changes))
        least = LEAST * share * all_pairs.square().point
        return pairs.square().decide(above=least, below=least)

    return count_groups(
        all_pairs,
        dim,
        [offset + grouping(size, number, groups) for number in range(groups)],
        matters,
    )


def count_passed_on(all_pairs: Pairs) -> Count:
    """How many groups of tokens come out as they went in, but for a factor and random numbers."""
    size = all_pairs.x[0].shape[TOKENS]
    if size < GROUPS:
        return Count(0, 0, 0)

    def is_more(pairs: Pairs, share: float) -> Decision:
        all_pairs.repeat(len(pairs.changes))
        input_change = pairs.input_change()
        a = pairs.nearest_multiple(input_change)
        a = 1.0 if abs(a - 1) < LEAST else a
        remainder = all_pairs.square(a * all_pairs.input_change())
        is_seen = remainder.decide(above=0.0, below=0.0) is Decision.ABOVE
        least = LEAST * share * remainder.point if is_seen else SAME * all_pairs.variation
        return pairs.square(a * input_change).decide(above=least, below=least)

    return count_groups(
        all_pairs, TOKENS, [block(size, number, GROUPS) for number in range(GROUPS)], is_more
    )


def count_groups(
    all_pairs: Pairs,
    dim: int,
    groups: list[Tensor],
    question: Callable[[Pairs, float], Decision],
) -> Count:
    """For how many groups of places the answer to a question is below, and for how many unknown.

    All are asked after each stage, until enough of them answer one way or the other.

    all_pairs: the input beside one in which everything is drawn anew
    dim:       the dimension of the places, as in `NAMES`
    groups:    numbers of the places of each group
    question:  asked of the pairs of a group, and its share of all places
    """
    total = len(groups)
    silent = 0
    size = sum(map(len, groups))
    pending = [(all_pairs.part_of(dim, group), len(group) / size) for group in groups]
    for count in STAGES:
        undecided = list[tuple[Pairs, float]]()
        for number, (pairs, share) in enumerate(pending):
            open_groups = len(undecided) + len(pending) - number
            if not Count(silent, open_groups, total).may_be_sign:
                return Count(0, 0, total)
            if pairs.changes and all_pairs.patience.has_ended:
                return Count(silent, open_groups, total)
            pairs.repeat(count)
            decision = question(pairs, share)
            silent += decision is Decision.BELOW
            if decision is Decision.UNKNOWN:
                undecided.append((pairs, share))
        pending = undecided
        if not pending or Count(silent, 0, total).is_sign:
            break
    return Count(silent, len(pending), total)


def block(size: int, number: int, groups: int) -> Tensor:
    """One of some groups of the places, which follow one another."""
    return torch.arange(number * size // groups, (number + 1) * size // groups)


def stride(size: int, number: int, groups: int) -> Tensor:
    """As many places apart as there are groups, from one on."""
    return torch.arange(number, size, groups)
