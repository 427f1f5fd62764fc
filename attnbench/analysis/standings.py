"""Which series is cheapest at each length, in time or memory, and which tie with it.

Among many series some look the fastest by chance, so the intervals here are simultaneous: in 95 %
of sweeps those of all pairs of series at all lengths and modes contain the truth together, and at
most 5 % of sweeps of equal series call any of them slower than another. They are wider than the
intervals of single ratios.

As in Tukey's test, the factor of the standard errors is a quantile of the studentized range (Tukey
1953, "The problem of multiple comparisons"), here of the widest range among the blocks, which
differ in their number of series. Blocks are taken as independent, which is conservative: they share
processes.

In simulations (four situations of tests/benchmarks/coverage.py, 200 sweeps each of 2, 3 and 6 equal
series in 3 and 8 rounds) 4 % of all sweeps found any pair different, at most 8 % in one situation.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np
import pandas as pd
from scipy.special import chdtri, ndtr

from attnbench.analysis.scaling import pairs
from attnbench.analysis.statistics.curves import Array
from attnbench.analysis.statistics.estimate import LEVEL
from attnbench.analysis.statistics.ratios import Ratios
from attnbench.records import metrics

WIDEST = 12.0  # in standard errors: no difference of equal series is larger
MANY = 1e5  # degrees of freedom that are as good as infinitely many
TAILS = (np.arange(1000) + 0.5) / 1000
LARGEST_LOG = 700.0  # of what a float can hold


@dataclass(frozen=True, kw_only=True)
class Margin:
    """The cost of one series over another's, with its interval; NaN where unknown."""

    factor: float = math.nan
    low: float = math.nan
    high: float = math.nan

    @classmethod
    def of(cls, log: float, half: float) -> Self:
        """From a log ratio and half its interval."""
        logs = (log, log - half, log + half)
        factor, low, high = (math.exp(min(one, LARGEST_LOG)) for one in logs)
        return cls(factor=factor, low=low, high=high)

    @property
    def costs_more(self) -> bool:
        """Whether the first costs significantly more."""
        return self.low > 1

    @property
    def has_interval(self) -> bool:
        """Whether there is an interval."""
        return not math.isnan(self.low)


UNKNOWN = Margin()
ONE = Margin(factor=1.0, low=1.0, high=1.0)  # of a series over itself


class Standings:
    """The comparisons of all series of equal sizes at each mode and length.

    `cases` is the summary of the sweep. Paired ratios are used where two series took turns.
    """

    def __init__(self, cases: pd.DataFrame, ratios: Ratios) -> None:
        timed = cases[cases[metrics.TIME] > 0]
        keys: list[tuple[str, str, str, int]] = []  # mode, two series, length
        rows: list[tuple[float, float, float]] = []  # log ratio, its error and degrees of freedom
        for mode, a, b, curve, _ in pairs(timed, ratios):
            keys += [(mode, a, b, n) for n in curve.whole]
            rows += zip(curve.logs, curve.errors, curve.df, strict=True)
        logs, errors, df = np.array(rows, float).reshape(-1, 3).T
        counts = sorted(timed.groupby(["mode", "sizes", "seq_len"])["series"].nunique())
        factors = joint_quantiles(tuple(counts), df)
        halves = np.where(errors == 0, 0.0, factors * errors)
        values = zip(logs.tolist(), halves.tolist(), strict=True)
        self.pairs = dict(zip(keys, values, strict=True))

    def margin(self, a: str, b: str, mode: str, seq_len: int) -> Margin:
        """The time of `a` over the time of `b`; `UNKNOWN` where one of them was not timed."""
        if entry := self.pairs.get((mode, a, b, seq_len)):
            return Margin.of(*entry)
        log, half = self.pairs.get((mode, b, a, seq_len), (math.nan, math.nan))
        return Margin.of(-log, half)

    def places(self, series: Sequence[str], mode: str, seq_len: int) -> "list[Standing]":
        """The series that were timed there, the fastest first, with their ranks."""
        return places(series, lambda a, b: self.margin(a, b, mode, seq_len))


def joint_quantiles(sizes: tuple[int, ...], df: Array) -> Array:
    """The factors of standard errors with `df` degrees of freedom [K] that give joint intervals.

    `sizes` are the numbers of series in the blocks. NaN where there are no degrees of freedom.
    """
    widths = np.linspace(0, WIDEST, 1000)
    within = within_ranges(sizes, widths)
    different, position = np.unique(df, return_inverse=True)
    factors = np.full(len(different), np.nan)
    for i, freedom in enumerate(different):
        if freedom > 0:
            # standard errors of equal probability, relative to the true one
            errors = np.sqrt(chdtri(min(freedom, MANY), TAILS) / min(freedom, MANY))
            low = 0.0
            high = 1000.0
            for _ in range(32):
                middle = (low + high) / 2
                chance = np.interp(middle * errors, widths, within).mean()
                low, high = (middle, high) if chance < LEVEL else (low, middle)
            factors[i] = low
    return factors[position]


def within_ranges(sizes: tuple[int, ...], widths: Array) -> Array:
    """The probability that the widest difference of two equal series of any block is at most each.

    `widths` are in standard errors of a difference.
    """
    lowest, step = np.linspace(-8, 8, 321, retstep=True)
    density = np.exp(-(lowest**2) / 2) / math.sqrt(2 * math.pi) * step
    above = ndtr(lowest[:, None] + math.sqrt(2) * widths) - ndtr(lowest[:, None])
    by_size = {size: size * (density @ above ** (size - 1)) for size in set(sizes)}
    return np.asarray(np.prod([by_size[size] for size in sizes], axis=0))


@dataclass(frozen=True)
class Standing:
    """A series in its order; `margin` is its cost over the first one's."""

    series: str
    rank: int  # from 1; those that tie share one
    margin: Margin


def places(series: Sequence[str], margin: Callable[[str, str], Margin]) -> list[Standing]:
    """The series, cheapest first: each that leads shares its rank with all not costlier than it.

    One that costs significantly more than another never leads.
    """
    over = {a: [margin(a, b) for b in series if b != a] for a in series}

    def key(name: str) -> tuple[int, float]:
        logs = [math.log(m.factor) for m in over[name] if 0 < m.factor < math.inf]
        return sum(m.costs_more for m in over[name]), sum(logs) / max(len(logs), 1)

    left = sorted(series, key=key)
    standings = list[Standing]()
    while left:
        leader, *others = left
        left = [name for name in others if margin(name, leader).costs_more]
        rank = 1 + len(standings)
        first = standings[0].series if standings else leader
        level = [leader, *(name for name in others if name not in left)]
        standings += [Standing(n, rank, margin(n, first) if n != first else ONE) for n in level]
    return standings


@dataclass(frozen=True, kw_only=True)
class Winner:
    """The cheapest series at one length: the `first`, and those that it ties with."""

    mode: str
    sizes: str
    seq_len: int
    first: str
    ties: tuple[Standing, ...]  # their interval contains 1
    unsure: tuple[Standing, ...]  # they have no interval
    runner_up: Standing | None  # the cheapest of the others
    measured: int  # number of series


def comparable(summary: pd.DataFrame) -> pd.DataFrame:
    """The cases whose peaks can be compared: at lengths where all states were filled, or none."""
    of_block = summary.groupby(["mode", "sizes", "seq_len"])["filled"]
    return summary[of_block.transform("all") == of_block.transform("any")]


def counted_in_full(summary: pd.DataFrame) -> pd.DataFrame:
    """The cases without the peaks that miss memory outside of torch."""
    missed = summary["uncounted"] != ""
    return summary.assign(**{metrics.MEMORY: summary[metrics.MEMORY].mask(missed)})


def winners(
    cases: pd.DataFrame, metric: str, standings: Standings | None = None
) -> Iterator[Winner]:
    """The winner of each mode, sizes and length at which something was measured.

    Times are compared by `standings`; costs without them are exact.
    """
    blocks = (
        block
        for _, of_sizes in cases[cases[metric] > 0].groupby(["mode", "sizes"], sort=False)
        for _, block in of_sizes.groupby("seq_len")
    )
    for block in blocks:
        mode, sizes, seq_len = block[["mode", "sizes", "seq_len"]].iloc[0]
        costs = {str(s): float(c) for s, c in zip(block["series"], block[metric], strict=True)}
        if standings is None:
            order = places([*costs], partial(_exact, costs, metrics.TABLE[metric].tolerance or 0.0))
        else:
            order = standings.places([*costs], mode, seq_len)
        first, *others = order
        level = [place for place in others if place.rank == 1]
        yield Winner(
            mode=str(mode),
            sizes=str(sizes),
            seq_len=int(seq_len),
            first=first.series,
            ties=tuple(place for place in level if place.margin.has_interval),
            unsure=tuple(place for place in level if not place.margin.has_interval),
            runner_up=next((place for place in others if place.rank > 1), None),
            measured=len(costs),
        )


def _exact(costs: Mapping[str, float], tolerance: float, a: str, b: str) -> Margin:
    return Margin.of(math.log(costs[a] / costs[b]), math.log1p(tolerance))
