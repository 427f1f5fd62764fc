"""Which cases race together, how often each runs, and in which order they take turns."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from attnbench.records import Planned, Settings

MOST_PAIRS = 6  # pairs of laps; more would only make samples shorter
REHEARSED_S = 0.1  # of a shorter iteration, the first one of a lap takes up to 1.2 times as long


@dataclass(frozen=True, kw_only=True)
class Turns:
    """How often a case runs in a race: pairs of laps, and iterations of each sample.

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


def groups(
    cases: Sequence[Planned],
    needed: Callable[[Planned], float],
    room: float,
    memory_bytes: float,
    link: Planned | None = None,
) -> list[list[Planned]]:
    """The races of a block: one if memory allows, otherwise several that share the link.

    A race may use `room` of the memory. The `link` has raced before; without one it is the case
    that needs least. A case that does not fit into memory together with it runs alone.
    """
    rest, has_raced = sorted(cases, key=needed), link is not None
    if link is None:
        link, *rest = rest
    groups: list[list[Planned]] = []
    for planned in rest:
        together = needed(link) + needed(planned)
        for group in groups:
            if link in group and sum(map(needed, group)) + needed(planned) <= room:
                group.append(planned)
                break
        else:
            groups.append([planned] if together > memory_bytes else [link, planned])
    if not has_raced and not any(link in group for group in groups):
        groups.insert(0, [link])
    return groups


def turns(iteration_s: float, settings: Settings) -> Turns:
    """How often a case runs in one race: at least one pair of laps, of one iteration each.

    The time of samples includes their rehearsals.
    """
    rehearsed = iteration_s < REHEARSED_S
    lap_s = max((1 + rehearsed) * iteration_s, settings.interval_s, 1e-9)
    pairs = min(MOST_PAIRS, max(1, round(settings.sample_s / (2 * lap_s))))
    wanted_s = max(settings.interval_s, settings.sample_s / (2 * pairs))
    iterations = max(1, round(wanted_s / max(iteration_s, 1e-9)) - rehearsed)
    return Turns(pairs=pairs, iterations=iterations, rehearsed=rehearsed)


def in_turns(turns: Mapping[str, Turns], draw: random.Random) -> Sequence[tuple[int, str]]:
    """Lap and series of every turn: pairs of laps in a random order and its mirror image.

    A series with fewer pairs than the race runs in some of them, spread over the race. Those with
    more pairs run in these too, since only pairs that two share compare them.
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


def next_pair(laps: Iterable[int]) -> int:
    """The first lap of the pair after these laps, the last of which may be unpaired."""
    return 2 * (max(laps, default=-1) // 2 + 1)
