"""What repeated rounds say of log ratios: the means, their standard errors and degrees of freedom.

All arrays are [K, P] or [K, P, R]: K blocks, P pairs of series, R rounds. The ratio of a pair in a
block is the mean over its rounds, and its 95 % interval is Student's t. Rounds are few, so the
variance between them is shrunk towards that of all pairs in all blocks (`estimate.shrunk`).

These groups are not independent, which limits the degrees of freedom of what they share:
S series have S − 1 independent ratios, and one process serves all blocks of its series in a round,
so that its restart effect is common to them. Of K blocks whose residuals correlate by ρ the mean
of their variances has K / (1 + (K − 1) ρ²) times the degrees of freedom of one block
(Satterthwaite 1946, "An approximate distribution of estimates of variance components").

ρ is estimated from the same few residuals. Where they happen to be small, the estimates of the
variance and of ρ are too small at once, so a plug-in estimate of ρ gives intervals that are too
short: coverage down to 92 % for two series in three rounds, and 89 % in two. ρ is therefore taken
at an upper confidence limit.

Coverage found by simulation of drift, steps, a busy neighbour, restarts and heavy tails is 94.6 to
96 % (tests/benchmarks/coverage.py). It is lower where one series is much less steady than the rest:
with restart effects four times those of five others, its own ratios reach 82 % in three rounds and
89 % in eight, since its variance is shrunk towards theirs. Three rounds cannot tell an unsteady
series from an unlucky one; all ratios of such a sweep together reach 93 to 94 %.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from attnbench.analysis.estimate import shrunk

Array = NDArray[np.float64]

# One-sided confidence that ρ lies below the value used. Simulated with normal residuals, two series
# and eight blocks, for every ρ from 0 to 0.99: at 0.75 coverage is 95 to 96 % in three rounds and
# 95 to 97 % in two; at 0.9 it reaches 98 and 99 %. Against the plug-in estimate, intervals in three
# rounds are at most 27 % wider for two series and 2 % for six; for two series in two rounds, where
# hardly anything is known of ρ, up to 2.6 times as wide.
CONFIDENCE = 0.75


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
