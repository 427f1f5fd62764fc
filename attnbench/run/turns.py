"""How often each entrant of a race runs, and in which order."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Turns:
    """How often an entrant runs in a race: pairs of laps, and iterations of each sample.

    Where it is `rehearsed`, one more iteration runs untimed before each sample: other processes
    have used the caches.
    """

    pairs: int
    iterations: int
    rehearsed: bool = False

    @property
    def total(self) -> int:
        """How many iterations run."""
        return 2 * self.pairs * (self.iterations + self.rehearsed)


def in_turns(turns: Mapping[str, Turns], draw: random.Random) -> Sequence[tuple[int, str]]:
    """Lap and entrant of every turn: pairs of laps in a random order and its mirror image.

    An entrant with fewer pairs than the race runs in some of them, spread over the race. Entrants
    with more pairs run in these too, since only pairs that two entrants share compare them.
    """
    pairs = max((own.pairs for own in turns.values()), default=0)
    schedule: list[tuple[int, str]] = []
    rank = {pair: rank for rank, pair in enumerate(sorted(range(pairs), key=reversed_bits))}
    for pair in range(pairs):
        running = [name for name, own in turns.items() if rank[pair] < own.pairs]
        order = draw.sample(running, len(running))
        schedule += [(2 * pair, name) for name in order]
        schedule += [(2 * pair + 1, name) for name in reversed(order)]
    return schedule


def reversed_bits(number: int) -> float:
    """The binary fraction with the bits of a number in reverse: 0, 1/2, 1/4, 3/4, 1/8, …"""
    return int(f"{number:b}"[::-1], 2) / (1 << number.bit_length())
