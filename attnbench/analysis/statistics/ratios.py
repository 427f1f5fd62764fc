"""Ratios of times from laps run in turns.

Within a block and a round the processes take turns, so drift of the machine affects all alike. The
ratio of one round is the median, over its pairs of laps, of the differences of log times
(`analysis.statistics.laps`).

The ratio of a pair in a block is the mean over its rounds, with a 95 % confidence interval by
Student's t. Rounds are few, so the variance between them is shrunk towards the one of all pairs in
all blocks (`estimate.shrunk`). Arrays are [K, P] or [K, P, R]: K blocks, P pairs of series, R
rounds, each with processes of its own.

These groups are not independent, which limits the degrees of freedom of what they share: S series
have S − 1 independent ratios, and one process serves all blocks of its series in a round, so these
blocks share the effect of the process. The mean variance of K blocks whose residuals correlate by ρ
has K / (1 + (K − 1) ρ²) times the degrees of freedom of one block
(Satterthwaite 1946, "An approximate distribution of estimates of variance components").

A sweep may stop repeating a block once its ratios are known (`Certainty.reaches`). Stopping where
a variance looks small selects small ones too often: the intervals of two series, stopped from three
rounds on, cover the truth in only 91 to 94 % (simulated). So nothing stops before `LEAST_ROUNDS`
rounds, and where a block reached its precision, the joint degrees of freedom are at most those of
that many rounds: coverage is then 93 to 96 %, as without stopping. The ratios themselves are
unbiased, as their variance alone decides.

What a budget repeats only until a ratio is decided (`DECIDED`) stops by the ratio itself, which
favours those that look far from 1. In simulations of two series (tests/benchmarks/coverage.py) the
intervals hold true ratios of 1, 1.15 and 1.3 in 93 to 96 %, and 1.15 is found as 1.15 to 1.16. Only
at the edge, 1.1, they hold it in 91 to 92 %: of those ratios 5 to 7 % are called decided.

ρ is estimated from the same few residuals. Where they happen to be small, the estimates of the
variance and of ρ are too small at once, so a plug-in estimate of ρ gives intervals that are too
short: coverage down to 92 % for two series in three rounds, and 89 % in two. ρ is therefore taken
at an upper confidence limit.

Coverage in simulations of drift, steps, a busy neighbour, bursts, a slow core, process effects and
heavy tails is 94.5 to 96 % (tests/benchmarks/coverage.py). It is lower where one series is much
less steady than the rest: with process effects four times those of five others, its own ratios
reach 84 % in three rounds and 89 % in eight, since its variance is shrunk towards theirs. Three
rounds cannot distinguish an unsteady series from an unlucky one; all ratios of such a sweep
together reach 93 to 94 %.
"""

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from statistics import NormalDist
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from attnbench.analysis.statistics.curves import Array, LogCurve, series_names
from attnbench.analysis.statistics.estimate import half_widths, shrunk
from attnbench.analysis.statistics.laps import Laps, by_pair, log_ratio, sweep_slope
from attnbench.records import LEAST_ROUNDS, Block, Mode, Outcome, Part, Run, Shard, Sweep

# One-sided confidence that ρ lies below the value used. Simulated with normal residuals, two series
# and eight blocks, for every ρ from 0 to 0.99: at 0.75 coverage is 95 to 96 % in three rounds and
# 95 to 97 % in two; at 0.9 it reaches 98 and 99 %. Against the plug-in estimate, intervals in three
# rounds are at most 27 % wider for two series and 2 % for six; for two series in two rounds, where
# hardly anything is known about ρ, up to 2.6 times as wide.
CONFIDENCE = 0.75

DECIDED = math.log(1.1)  # a log ratio certainly further from 0 needs no more laps
# degrees of freedom from which a ratio of an unfinished sweep may be said to be decided: two rounds
# of two series look decided where they happen to agree, and hold the truth in 83 to 93 % then
LEAST_DF = 2.0

Key = TypeVar("Key", bound=Hashable)
Curve = TypeVar("Curve", bound=Hashable)  # a series, or its name
BlockLaps = Mapping[tuple[Curve, Key], Mapping[int, Laps]]  # of each round, by series and block


class Ratio(NamedTuple):
    """A log ratio of times with its standard error and degrees of freedom.

    Both are NaN where the sweep has only one round of every pair.
    """

    log: float
    se: float
    df: float


class Means(NamedTuple):
    """Log ratios [K, P] with standard errors and degrees of freedom, NaN where unknown; rounds."""

    log: Array
    se: Array
    df: Array
    rounds: NDArray[np.int_]


class Decided(NamedTuple, Generic[Curve, Key]):
    """How many times as fast one series of a block is as another, to within an interval."""

    block: Key
    fast: Curve
    slow: Curve
    low: float
    high: float


class Certainty(NamedTuple):
    """How well all ratios of a block are known: the widest interval, the fewest rounds."""

    half: float  # relative half-width of the 95 % confidence interval; infinite after one round
    rounds: int

    def reaches(self, precision: float) -> bool:
        """Whether every ratio is known to this half-width, and may be taken to be."""
        return self.rounds >= LEAST_ROUNDS and self.half <= precision


class Ratios:
    """Every ratio of times that a sweep measured in turns; empty if it measured none.

    Times of stacks are those of a layer, as `Planned.depth` says.
    """

    def __init__(self, sweep: Sweep) -> None:
        names = series_names(sweep.plan)
        blocks = {planned.case.key: planned.block for planned in sweep.plan}
        depths = {p.case.key: p.depth for p in sweep.plan}
        laps: dict[tuple[str, Block], dict[int, Laps]] = {}
        slope = sweep_slope(sweep.runs, blocks)
        for run in sweep.runs:
            timed = run.part is Part.TIME and run.outcome is Outcome.OK and run.case in blocks
            if timed and (pairs := by_pair(run.samples, slope)):
                depth = depths[run.case]
                of_layer = {pair: seconds / depth for pair, seconds in pairs.items()}
                laps.setdefault((names[run.case], blocks[run.case]), {})[run.round] = of_layer
        self.places = {(names[k], str(b.mode), b.seq_len): b for k, b in blocks.items()}
        self.series = numbered(names.values())
        self.blocks = numbered(block for _, block in laps)
        self.pairs = numbered(combinations(self.series.values(), 2))
        logs = gathered(laps, self.series, self.blocks, processes(sweep.runs, blocks))
        self.means = final(logs, list(self.pairs), sweep.request.precision)

    def ratio(self, a: str, b: str, mode: str | Mode, seq_len: int) -> Ratio | None:
        """The log ratio of the times of two series, or None where they did not take turns.

        a, b: series; the ratio is of the first over the second.
        mode: of the block.
        seq_len: of the block.
        """
        place = self.places.get((a, str(mode), seq_len))
        block = self.blocks.get(place) if place else None
        first, second = (self.series.get(name, -1) for name in (a, b))
        pair = self.pairs.get((min(first, second), max(first, second)))
        if block is None or pair is None or math.isnan(self.means.log[block, pair]):
            return None
        log, se, df = (float(values[block, pair]) for values in self.means[:3])
        return Ratio(log if first < second else -log, se, df)

    @property
    def certainties(self) -> Mapping[Block, Certainty]:
        """How well the ratios of each block that has any are known."""
        by_block = zip(self.blocks, certainties(self.means), strict=True)
        return {block: certainty for block, certainty in by_block if certainty}

    def in_turns(
        self, independent: LogCurve, a: str, b: str, mode: str
    ) -> tuple[LogCurve, NDArray[np.bool_]]:
        """A log ratio with paired values in place of independent ones, and at which lengths.

        independent: of a over b, from the times of each alone.
        a, b: series.
        mode: of the curve.
        """
        ratios = [self.ratio(a, b, mode, n) for n in independent.whole]
        columns = (independent.logs, independent.errors, independent.df)
        rows = zip(*columns, strict=True)
        paired_rows = [ratio or row for ratio, row in zip(ratios, rows, strict=True)]
        logs, errors, df = np.array(paired_rows, float).reshape(-1, 3).T
        paired = np.array([ratio is not None for ratio in ratios], bool)
        return replace(independent, logs=logs, errors=errors, df=df), paired


def processes(
    runs: Iterable[Run], blocks: Mapping[str, Block]
) -> dict[tuple[Block, int], tuple[Shard | None, int]]:
    """Which processes served each round of a block; `blocks` are those of the cases.

    Rounds of the same number have the same processes, in each shard of a divided sweep its own.
    """
    timed = (run for run in runs if run.case in blocks and run.samples)
    return {(blocks[r.case], r.round): (r.origin.shard, r.round) for r in timed}


def numbered(keys: Iterable[Key]) -> dict[Key, int]:
    """Each distinct key with its number, in the order of first appearance."""
    return {key: i for i, key in enumerate(dict.fromkeys(keys))}


def gathered(
    laps: BlockLaps[Curve, Key],
    series: Mapping[Curve, int],
    blocks: Mapping[Key, int],
    together: Mapping[tuple[Key, int], Hashable],
) -> Array:
    """Log ratios [K, P, R] of the laps of each series in each block and round; NaN where none.

    laps: by series and block, and then by round.
    series: their numbers.
    blocks: their numbers.
    together: which processes served a round of a block; R counts their sets.
    """
    sets = numbered(together.values())
    logs = np.full((len(blocks), math.comb(len(series), 2), len(sets)), np.nan)
    for block, k in blocks.items():
        for p, (a, b) in enumerate(combinations(series, 2)):
            first = laps.get((a, block), {})
            second = laps.get((b, block), {})
            for round_ in first.keys() & second.keys():
                if (log := log_ratio(first[round_], second[round_])) is not None:
                    logs[k, p, sets[together[block, round_]]] = log
    return logs


def so_far(
    laps: BlockLaps[Curve, Key],
) -> tuple[dict[Key, Certainty], dict[tuple[Curve, Key], float], dict[tuple[Curve, Key], float]]:
    """How well the ratios of an unfinished sweep are known, where there are any.

    Returns the certainty of each block; the widest relative half-width of the ratios of each series
    in each block, infinite where none has an interval yet; and the same of those ratios alone whose
    interval contains something within `DECIDED` of 1.
    """
    series = numbered(curve for curve, _ in laps)
    blocks = numbered(block for _, block in laps)
    if len(series) < 2:
        return {}, {}, {}
    averages = means_so_far(laps)
    by_block = zip(blocks, certainties(averages), strict=True)
    widths: dict[tuple[Curve, Key], float] = {}
    undecided: dict[tuple[Curve, Key], float] = {}
    columns = (averages.log, half_widths(averages.se, averages.df), averages.rounds)
    for block, *rows in zip(blocks, *columns, strict=True):
        for pair, log, half, rounds in zip(combinations(series, 2), *rows, strict=True):
            for case in ((name, block) for name in pair if rounds):
                width = math.inf if math.isnan(half) else math.expm1(half)
                widths[case] = max(width, widths.get(case, 0.0))
                if not abs(log) - half > DECIDED:
                    undecided[case] = max(width, undecided.get(case, 0.0))
    return {block: certainty for block, certainty in by_block if certainty}, widths, undecided


def means_so_far(laps: BlockLaps[Curve, Key]) -> Means:
    """The means of an unfinished sweep, of at least two series, in the order of `laps`."""
    series = numbered(curve for curve, _ in laps)
    blocks = numbered(block for _, block in laps)
    sets = {(block, r): r for (_, block), by_round in laps.items() for r in by_round}
    logs = gathered(laps, series, blocks, sets)
    # the degrees of freedom are those of stopping by precision
    return means(logs, list(combinations(series.values(), 2)), LEAST_ROUNDS)


def decided_so_far(laps: BlockLaps[Curve, Key]) -> Iterator[Decided[Curve, Key]]:
    """The ratios of an unfinished sweep whose interval has nothing within `DECIDED` of 1."""
    series = numbered(curve for curve, _ in laps)
    blocks = numbered(block for _, block in laps)
    if len(series) < 2:
        return
    averages = means_so_far(laps)
    halves = half_widths(averages.se, averages.df)
    for block, *rows in zip(blocks, averages.log, halves, averages.df, strict=True):
        for pair, log, half, df in zip(combinations(series, 2), *rows, strict=True):
            if df >= LEAST_DF and abs(log) - half > DECIDED:
                fast, slow = pair if log < 0 else pair[::-1]
                ends = math.exp(abs(log) - half), math.exp(abs(log) + half)
                yield Decided(block, fast, slow, *ends)


def means(logs: Array, pairs: Sequence[tuple[int, int]], most_rounds: float = math.inf) -> Means:
    """The mean over rounds of log ratios [K, P, R], in which NaN marks missing ones.

    `pairs` are the numbers of the two series of each pair. Errors are NaN if no pair in any block
    has two rounds. The joint degrees of freedom are at most those of `most_rounds`.
    """
    finite = np.isfinite(logs)
    counts = finite.sum(2)
    log = np.where(finite, logs, 0.0).sum(2) / np.where(counts, counts, np.nan)
    residuals = np.where(finite, logs - log[:, :, None], 0.0)
    dfs = np.maximum(counts - 1, 0)
    variance = np.full_like(log, np.nan)
    df = np.full_like(log, np.nan)
    if dfs.any():
        present = counts > 0
        variances = (residuals**2).sum(2) / np.maximum(dfs, 1)
        most = independent(residuals, np.minimum(dfs, most_rounds - 1), pairs)
        variance[present], df[present] = shrunk(variances[present], dfs[present], most)
    return Means(log, np.sqrt(variance / np.maximum(counts, 1)), df, counts)


def final(logs: Array, pairs: Sequence[tuple[int, int]], precision: float | None) -> Means:
    """The means of a sweep whose blocks end at a precision, if one is given."""
    whole = means(logs, pairs)
    ends = (
        certainty.reaches(precision) for certainty in certainties(whole) if certainty and precision
    )
    return means(logs, pairs, LEAST_ROUNDS) if any(ends) else whole


def certainties(means: Means) -> list[Certainty | None]:
    """How well the ratios of each block are known; None where a block has none."""
    halves = np.expm1(half_widths(means.se, means.df))
    halves[np.isnan(halves)] = np.inf
    rows = [(half[n > 0], n[n > 0]) for half, n in zip(halves, means.rounds, strict=True)]
    return [Certainty(float(half.max()), int(n.min())) if len(n) else None for half, n in rows]


def independent(residuals: Array, dfs: NDArray[np.int_], pairs: Sequence[tuple[int, int]]) -> float:
    """The joint degrees of freedom, at least 1, of residuals [K, P, R]; `dfs` [K, P] per group.

    Groups without repetition do not count.
    """
    repeated = dfs > 0
    members = np.zeros((len(pairs), 1 + max(map(max, pairs))))
    for p, pair in enumerate(pairs):
        members[p, list(pair)] = 1
    series = (repeated @ members > 0).sum(1)
    repeats = dfs.sum(1) / np.maximum(repeated.sum(1), 1)
    contrasts = float((np.maximum(series - 1, 0) * repeats).sum())
    of_pair = repeated.sum(0)[repeated.any(0)]
    rho = correlation(residuals[:, repeated.any(0)], of_pair, contrasts / float(of_pair.mean()))
    return max(1.0, contrasts / (1 + (float(of_pair.mean()) - 1) * rho**2))


def correlation(residuals: Array, of_pair: NDArray[np.int_], contrasts: float) -> float:
    """An upper confidence limit of the correlation ρ, between 0 and 1, of blocks in one round.

    `of_pair` [P] counts the blocks K of each pair, `contrasts` the degrees of freedom of one block.
    The mean squares between and within rounds have the ratio (1 + (K − 1) ρ) / (1 − ρ); that
    between rounds has the fewest degrees of freedom, and is divided by a low quantile of χ².
    """
    blocks = float(of_pair.mean())
    if blocks <= 1:
        return 0.0
    between = float((residuals.sum(0) ** 2 / of_pair[:, None]).sum())
    within = float((residuals**2).sum()) - between
    if within <= 0:
        return 1.0
    ratio = (blocks - 1) * between / within / low_mean_square(contrasts)
    return min(1.0, max(0.0, (ratio - 1) / (ratio - 1 + blocks)))


def low_mean_square(df: float) -> float:
    """The quantile of χ²/df that is exceeded with `CONFIDENCE` (Wilson and Hilferty 1931)."""
    spread = 2 / (9 * max(df, 1))
    return float((1 - spread - NormalDist().inv_cdf(CONFIDENCE) * spread**0.5) ** 3)
