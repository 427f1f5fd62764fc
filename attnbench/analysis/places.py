"""The cheapest series at each length of a sweep, in time or memory, and those that tie with it.

Neighbouring lengths with the same answer are one span.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnbench.analysis.standings import Margin, Standings, groups
from attnbench.metrics import TABLE

if TYPE_CHECKING:
    import pandas as pd

TIME, MEMORY, STATE = "time_s", "allocated_peak_bytes", "state_bytes"


@dataclass(frozen=True, kw_only=True)
class Rival:
    """A series next to the first of its place; `margin` is its cost over that of the first."""

    series: str
    margin: Margin
    same_function: bool  # another form of the first's mechanism


@dataclass(frozen=True, kw_only=True)
class Place:
    """The cheapest series at one length: the `first`, and those that it ties with."""

    seq_len: int
    first: str
    cost: float  # of the first: seconds of an iteration, or bytes
    ties: tuple[Rival, ...]  # their interval holds 1
    unsure: tuple[Rival, ...]  # they have no interval
    rest: Rival | None  # the cheapest of the others
    measured: int  # the number of series


@dataclass(frozen=True, kw_only=True)
class Span:
    """Neighbouring lengths of the sweep at which the same series lead."""

    mode: str
    places: tuple[Place, ...]


def spans(
    cases: "pd.DataFrame",
    metric: str,
    standings: Standings | None,
    functions: dict[str, object],
) -> Iterator[Span]:
    """The spans of each mode; a length at which nothing was measured ends one."""
    for mode, own in cases.groupby("mode", sort=False):
        run: list[Place] = []
        for _, block in own.groupby("seq_len"):
            place = _place(block[block[metric] > 0], metric, standings, functions)
            if run and (place is None or _answer(place) != _answer(run[-1])):
                yield Span(mode=str(mode), places=tuple(run))
                run = []
            run += [place] if place else []
        if run:
            yield Span(mode=str(mode), places=tuple(run))


def _place(
    block: "pd.DataFrame",
    metric: str,
    standings: Standings | None,
    functions: dict[str, object],
) -> Place | None:
    """The place of these cases of one mode and length; None without any."""
    if not len(block):
        return None
    mode, seq_len = str(block["mode"].iloc[0]), int(block["seq_len"].iloc[0])
    costs = {str(s): float(c) for s, c in zip(block["series"], block[metric], strict=True)}

    def margin(a: str, b: str) -> Margin:
        if standings is not None:
            return standings.margin(a, b, mode, seq_len)
        return Margin.of(math.log(costs[a] / costs[b]), math.log1p(TABLE[metric].tolerance or 0))

    (first, *level), *others = groups(list(costs), margin)
    rivals = [
        Rival(
            series=name,
            margin=margin(name, first),
            same_function=functions[name] == functions[first],
        )
        for name in (*level, *(group[0] for group in others[:1]))
    ]
    ties = rivals[: len(level)]
    return Place(
        seq_len=seq_len,
        first=first,
        cost=costs[first],
        ties=tuple(rival for rival in ties if rival.margin.known),
        unsure=tuple(rival for rival in ties if not rival.margin.known),
        rest=rivals[-1] if others else None,
        measured=len(costs),
    )


def _answer(place: Place) -> tuple[object, ...]:
    """What neighbouring places must share to be one span."""
    leaders = frozenset((place.first, *(rival.series for rival in place.ties)))
    # without intervals the first series is all that there is to say
    return leaders, bool(place.unsure), place.measured == 1
