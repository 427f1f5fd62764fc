"""Ratios of times from laps that were run in turns.

Within a block and a round the processes take turns, so a drift of the machine falls on all alike.
The ratio of one round is the median, over its pairs of laps, of the differences of log times; the
rounds are the replication. Their variance is drawn towards that of all pairs of the sweep, as in
`estimate`, with degrees of freedom that heed what pairs share: a process serves all blocks of its
series in a round, and a series stands in many pairs.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import combinations
from statistics import mean, median
from typing import TYPE_CHECKING

from attnbench.analysis.estimate import Spread, spreads
from attnbench.analysis.series import series_names
from attnbench.records import Mode, Outcome, Part, Run, Sample, Sweep

if TYPE_CHECKING:
    import pandas as pd

Laps = Mapping[int, float]  # pair of laps -> seconds of one iteration
Block = tuple[str, int]  # mode and length
Pair = tuple[str, str]  # two series, in the order of the plan


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A log ratio of times with its standard error and degrees of freedom."""

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
        self.logs: dict[Block, dict[Pair, list[float]]] = {}
        laps: dict[Block, dict[str, dict[int, Laps]]] = defaultdict(lambda: defaultdict(dict))
        for run in sweep.runs:
            timed = run.part is Part.TIME and run.outcome is Outcome.OK and run.case in blocks
            if timed and (found := by_pair(run.samples)):
                laps[blocks[run.case]][names[run.case]][run.round] = found
        order = {name: place for place, name in enumerate(dict.fromkeys(names.values()))}
        for block, series in laps.items():
            pairs = combinations(sorted(series, key=order.__getitem__), 2)
            self.logs[block] = {
                (a, b): logs for a, b in pairs if (logs := over_rounds(series[a], series[b]))
            }
        self.spreads = self._spreads()
        self.aliases: Mapping[str, str] = {}

    def ratio(self, one: str, other: str, mode: str | Mode, seq_len: int) -> Ratio | None:
        """Log time of one series over another's, or None where they did not take turns."""
        block = (str(mode), seq_len)
        one, other = (self.aliases.get(name, name) for name in (one, other))
        if (one, other) in (pairs := self.logs.get(block, {})):
            pair, sign = (one, other), 1.0
        elif (other, one) in pairs:
            pair, sign = (other, one), -1.0
        else:
            return None
        logs = pairs[pair]
        spread = self.spreads.get((block, pair))
        se = math.sqrt(spread.variance / len(logs)) if spread else math.nan
        return Ratio(log=sign * mean(logs), se=se, df=spread.df if spread else math.nan)

    def named(self, names: Mapping[str, str]) -> "Ratios":
        """The same ratios with series under other names."""
        found = copy(self)
        found.aliases = {new: old for old, new in names.items()}
        return found

    def refine(self, found: "pd.DataFrame", one: str, other: str, mode: str) -> "pd.DataFrame":
        """Log ratios by length (y, se, df), with the paired ones in place of independent ones.

        The column `paired` says which are.
        """
        import pandas as pd

        rows = [(*row, False) for row in found[["y", "se", "df"]].itertuples(index=False)]
        for place, length in enumerate(found.index):
            if (ratio := self.ratio(one, other, mode, int(length))) is not None:
                rows[place] = (ratio.log, ratio.se, ratio.df, True)
        return pd.DataFrame(rows, columns=["y", "se", "df", "paired"], index=found.index)

    def _spreads(self) -> dict[tuple[Block, Pair], Spread]:
        """The variance of one round of each pair in each block."""
        keys = [(block, pair) for block, pairs in self.logs.items() for pair in pairs]
        groups = [self.logs[block][pair] for block, pair in keys]
        found = spreads(groups, most_df=self._independent())
        return dict(zip(keys, found, strict=True)) if found else {}

    def _independent(self) -> float:
        """Degrees of freedom of all pairs together.

        Of S series S − 1 ratios are independent. K blocks whose residuals correlate by ρ tell as
        much of a variance as K / (1 + (K − 1) ρ²) independent ones.
        """
        by_pair_: dict[Pair, list[list[float]]] = defaultdict(list)
        for pairs in self.logs.values():
            for pair, logs in pairs.items():
                if len(logs) > 1:
                    by_pair_[pair].append([log - mean(logs) for log in logs])
        series = {name for pair in by_pair_ for name in pair}
        if not series:
            return 0.0
        rho, blocks = _correlation(by_pair_.values())
        rounds = mean(len(rows[0]) for rows in by_pair_.values())
        return max(1.0, (rounds - 1) * (len(series) - 1) * blocks / (1 + (blocks - 1) * rho**2))


def by_pair(samples: Iterable[Sample]) -> Laps:
    """Seconds of one iteration in each pair of laps that is whole: the mean of its two."""
    seconds: dict[int, float] = {s.lap: sample_seconds(s) for s in samples if s.lap is not None}
    return {
        lap // 2: (seconds[lap] + seconds[lap + 1]) / 2
        for lap in seconds
        if lap % 2 == 0 and lap + 1 in seconds
    }


def log_ratio(one: Run, other: Run) -> float | None:
    """The log ratio of one round; None where the two shared no pair of laps."""
    return _log_ratio(by_pair(one.samples), by_pair(other.samples))


def over_rounds(one: Mapping[int, Laps], other: Mapping[int, Laps]) -> list[float]:
    """The log ratio of each round that both have."""
    found = (_log_ratio(one[round_], other[round_]) for round_ in sorted(one.keys() & other.keys()))
    return [log for log in found if log is not None]


def sample_seconds(sample: Sample) -> float:
    """Seconds of one iteration: device time on a GPU, wall time else."""
    whole = sample.wall_s if sample.device_s is None else sample.device_s
    return whole / sample.iterations


def _log_ratio(one: Laps, other: Laps) -> float | None:
    logs = [math.log(one[pair] / other[pair]) for pair in one.keys() & other.keys()]
    return median(logs) if logs else None


def _correlation(pairs: Iterable[Sequence[Sequence[float]]]) -> tuple[float, float]:
    """How residuals of one round correlate between blocks, and blocks per pair, on average.

    Of K blocks' residuals c, q = K Σ_r (mean_k c)² / Σ c² is expected at (1 + (K − 1) ρ) / K.
    """
    shared = whole = 0.0
    counts = []
    for rows in pairs:
        width = min(map(len, rows))
        columns = [[row[r] for row in rows] for r in range(width)]
        counts.append(len(rows))
        if len(rows) > 1:
            shared += len(rows) * sum(mean(column) ** 2 for column in columns)
            whole += sum(c * c for column in columns for c in column)
    blocks = mean(counts)
    if not whole or blocks <= 1:
        return 0.0, blocks
    return min(1.0, max(0.0, (blocks * shared / whole - 1) / (blocks - 1))), blocks
