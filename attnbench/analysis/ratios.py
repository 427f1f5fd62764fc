"""Ratios of times from laps that were run in turns.

Within a block and a round the processes take turns, so a drift of the machine falls on all alike.
The ratio of one round is the median, over its pairs of laps, of the differences of log times.

The ratio of a pair in a block is the mean over its rounds, and its 95 % confidence interval is
Student's t. Rounds are few, so the variance between them is shrunk towards that of all pairs in
all blocks (`estimate.shrunk`). Arrays are [K, P] or [K, P, R]: K blocks, P pairs of series, R
rounds.

These groups are not independent, which limits the degrees of freedom of what they share:
S series have S − 1 independent ratios, and one process serves all blocks of its series in a round,
so that the effect of the process is common to them. Of K blocks whose residuals correlate by ρ the
mean of their variances has K / (1 + (K − 1) ρ²) times the degrees of freedom of one block
(Satterthwaite 1946, "An approximate distribution of estimates of variance components").

ρ is estimated from the same few residuals. Where they happen to be small, the estimates of the
variance and of ρ are too small at once, so a plug-in estimate of ρ gives intervals that are too
short: coverage down to 92 % for two series in three rounds, and 89 % in two. ρ is therefore taken
at an upper confidence limit.

Coverage found by simulation of drift, steps, a busy neighbour, process effects and heavy tails is
94.6 to 96 % (tests/benchmarks/coverage.py). It is lower where one series is much less steady than
the rest: with process effects four times those of five others, its own ratios reach 82 % in three
rounds and 89 % in eight, since its variance is shrunk towards theirs. Three rounds cannot tell an
unsteady series from an unlucky one; all ratios of such a sweep together reach 93 to 94 %.
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import NormalDist, median
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from attnbench.analysis.curves import Array, LogCurve, series_names
from attnbench.analysis.estimate import shrunk
from attnbench.records import Mode, Outcome, Part, Run, Sample, Sweep

# One-sided confidence that ρ lies below the value used. Simulated with normal residuals, two series
# and eight blocks, for every ρ from 0 to 0.99: at 0.75 coverage is 95 to 96 % in three rounds and
# 95 to 97 % in two; at 0.9 it reaches 98 and 99 %. Against the plug-in estimate, intervals in three
# rounds are at most 27 % wider for two series and 2 % for six; for two series in two rounds, where
# hardly anything is known of ρ, up to 2.6 times as wide.
CONFIDENCE = 0.75

Laps = Mapping[int, float]  # pair of laps -> seconds of one iteration
Block = tuple[str, int]  # mode and length
Thing = TypeVar("Thing", bound=Hashable)


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A log ratio of times with its standard error and degrees of freedom.

    Both are NaN where the sweep has one round of every pair.
    """

    log: float
    se: float
    df: float


class Ratios:
    """Every ratio of times that a sweep measured in turns; empty for one that did not."""

    def __init__(self, sweep: Sweep) -> None:
        names = series_names(sweep.plan)
        blocks = {
            p.case.key: (str(p.case.workload.mode), p.case.workload.seq_len) for p in sweep.plan
        }
        found: dict[tuple[str, Block], dict[int, Laps]] = {}
        for run in sweep.runs:
            timed = run.part is Part.TIME and run.outcome is Outcome.OK and run.case in blocks
            if timed and (laps := by_pair(run.samples)):
                found.setdefault((names[run.case], blocks[run.case]), {})[run.round] = laps
        self.aliases: Mapping[str, str] = {}
        self.series = places(names.values())
        self.blocks = places(block for _, block in found)
        self.pairs = places(combinations(self.series.values(), 2))
        rounds = places(round_ for each in found.values() for round_ in each)
        logs = np.full((len(self.blocks), len(self.pairs), len(rounds)), np.nan)
        for (one, other), pair in zip(
            combinations(self.series, 2), self.pairs.values(), strict=True
        ):
            for block, place in self.blocks.items():
                shared = over_rounds(found.get((one, block), {}), found.get((other, block), {}))
                for round_, log in shared.items():
                    logs[place, pair, rounds[round_]] = log
        self.means = means(logs, list(self.pairs))

    def ratio(self, one: str, other: str, mode: str | Mode, seq_len: int) -> Ratio | None:
        """Log time of one series over another's, or None where they did not take turns."""
        block = self.blocks.get((str(mode), seq_len))
        first, second = (self.series.get(self.aliases.get(name, name), -1) for name in (one, other))
        pair = self.pairs.get((min(first, second), max(first, second)))
        if block is None or pair is None or math.isnan(self.means.log[block, pair]):
            return None
        log, se, df = (
            float(values[block, pair]) for values in (self.means.log, self.means.se, self.means.df)
        )
        return Ratio(log=log if first < second else -log, se=se, df=df)

    def named(self, names: Mapping[str, str]) -> "Ratios":
        """The same ratios with series under other names."""
        found = copy(self)
        found.aliases = {new: old for old, new in names.items()}
        return found

    def in_turns(
        self, independent: LogCurve, one: str, other: str, mode: str
    ) -> tuple[LogCurve, NDArray[np.bool_]]:
        """A log ratio with the paired values in place of independent ones, and where they stand."""
        ratios = [self.ratio(one, other, mode, int(n)) for n in independent.lengths]
        columns = (independent.logs, independent.errors, independent.df)
        rows = [
            row if ratio is None else (ratio.log, ratio.se, ratio.df)
            for ratio, row in zip(ratios, zip(*columns, strict=True), strict=True)
        ]
        logs, errors, df = np.array(rows, float).reshape(-1, 3).T
        paired = np.array([ratio is not None for ratio in ratios], bool)
        return replace(independent, logs=logs, errors=errors, df=df), paired


def by_pair(samples: Iterable[Sample]) -> Laps:
    """Seconds of one iteration in each pair of laps that is whole: the mean of its two."""
    seconds: dict[int, float] = {s.lap: s.seconds for s in samples if s.lap is not None}
    return {
        lap // 2: (seconds[lap] + seconds[lap + 1]) / 2
        for lap in seconds
        if lap % 2 == 0 and lap + 1 in seconds
    }


def log_ratio(one: Run, other: Run) -> float | None:
    """The log ratio of one round; None where the two shared no pair of laps."""
    return _log_ratio(by_pair(one.samples), by_pair(other.samples))


def over_rounds(one: Mapping[int, Laps], other: Mapping[int, Laps]) -> dict[int, float]:
    """The log ratio of each round in which the two shared a pair of laps."""
    found = {round_: _log_ratio(one[round_], other[round_]) for round_ in one.keys() & other.keys()}
    return {round_: log for round_, log in found.items() if log is not None}


def places(things: Iterable[Thing]) -> dict[Thing, int]:
    """The place of each among those that differ, in the order of their first appearance."""
    return {thing: place for place, thing in enumerate(dict.fromkeys(things))}


def _log_ratio(one: Laps, other: Laps) -> float | None:
    logs = [math.log(one[pair] / other[pair]) for pair in one.keys() & other.keys()]
    return median(logs) if logs else None


@dataclass(frozen=True, kw_only=True)
class Means:
    """Log ratios [K, P] with standard errors and degrees of freedom; NaN where not known."""

    log: Array
    se: Array
    df: Array


def means(logs: Array, pairs: Sequence[tuple[int, int]]) -> Means:
    """The mean over rounds of log ratios [K, P, R], in which NaN marks what was not measured.

    `pairs` are the numbers of the two series of each pair. Errors are NaN where no pair in any
    block has two rounds.
    """
    known = np.isfinite(logs)
    counts = known.sum(2)
    log = np.where(known, logs, 0.0).sum(2) / np.where(counts, counts, np.nan)
    residuals = np.where(known, logs - log[:, :, None], 0.0)
    dfs = np.maximum(counts - 1, 0)
    if not dfs.any():
        return Means(log=log, se=np.full_like(log, np.nan), df=np.full_like(log, np.nan))
    present = counts > 0
    own = (residuals**2).sum(2) / np.maximum(dfs, 1)
    most = independent(residuals, dfs, pairs)
    variance, df = np.full_like(log, np.nan), np.full_like(log, np.nan)
    variance[present], df[present] = shrunk(own[present], dfs[present], most)
    return Means(log=log, se=np.sqrt(variance / np.maximum(counts, 1)), df=df)


def independent(residuals: Array, dfs: NDArray[np.int_], pairs: Sequence[tuple[int, int]]) -> float:
    """The degrees of freedom of all residuals [K, P, R] together; those of each group are [K, P].

    At least 1. A group without repetition, or without any round, counts for nothing.
    """
    repeated = dfs > 0
    members = np.zeros((len(pairs), 1 + max(map(max, pairs))))
    for place, pair in enumerate(pairs):
        members[place, list(pair)] = 1
    series = (repeated @ members > 0).sum(1)
    repeats = dfs.sum(1) / np.maximum(repeated.sum(1), 1)
    contrasts = float((np.maximum(series - 1, 0) * repeats).sum())
    of_pair = repeated.sum(0)[repeated.any(0)]
    rho = correlation(residuals[:, repeated.any(0)], of_pair, contrasts / float(of_pair.mean()))
    return max(1.0, contrasts / (1 + (float(of_pair.mean()) - 1) * rho**2))


def correlation(residuals: Array, of_pair: NDArray[np.int_], contrasts: float) -> float:
    """An upper confidence limit of the correlation ρ, between 0 and 1, of blocks in one round.

    `of_pair` [P] counts the blocks K of each pair, `contrasts` the degrees of freedom of one block.
    The mean squares between and within rounds have the ratio (1 + (K − 1) ρ) / (1 − ρ); what is
    between is known with the fewest degrees of freedom, and is divided by a low quantile of χ².
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
