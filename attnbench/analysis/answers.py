"""What a sweep reached, and who costs least at each length, as data."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from attnbench.analysis.standings import (
    Standings,
    Winner,
    comparable,
    counted_in_full,
    winners,
)
from attnbench.analysis.suspects import rankable
from attnbench.records import Outcome, metrics, outcomes

FAR = 4  # times the common front, beyond which a report says how far each series went


@dataclass(frozen=True)
class UnmeasuredLengths:
    """The lengths at which a series was not measured in full in one mode, for one reason."""

    mode: str
    series: str
    outcome: str
    cause: str
    lengths: tuple[int, ...]
    reason: str  # at the first of them

    @property
    def first(self) -> int:
        """The shortest of the lengths."""
        return self.lengths[0]

    @property
    def is_limit(self) -> bool:
        """Whether the series hits a limit of memory or time at the first of these lengths."""
        return outcomes.ending(self.outcome, self.cause).limit


@dataclass(frozen=True, kw_only=True)
class Front:
    """Where the series of one mode can be compared: its common front.

    `seq_len` is the longest length at which all `series` that were timed in this mode and may be
    ranked were timed; where there is none, the longest of those at which the most, `timed`, were.
    Where nothing may be ranked, suspects count. `reached` has the longest timed length of each
    series that was timed.
    """

    mode: str
    seq_len: int
    timed: int
    series: int
    reached: Mapping[str, int]

    @property
    def is_common(self) -> bool:
        """Whether all series that may be ranked were timed there."""
        return self.timed == self.series

    @property
    def is_short(self) -> bool:
        """Whether most series reached lengths more than `FAR` times as long."""
        longest = sorted(self.reached.values(), reverse=True)
        return FAR * self.seq_len < longest[len(longest) // 2]


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What a sweep planned, reached and left out, and who costs least at each length.

    `fronts` are those of the modes in which something was timed, in the order of the plan;
    `seq_len` is the shortest of them, None if nothing was timed.
    """

    cases: int
    timed: int
    series: tuple[str, ...]
    lengths: tuple[int, ...]  # of the plan
    seq_len: int | None
    fronts: tuple[Front, ...]
    fastest: tuple[Winner, ...]
    least_memory: tuple[Winner, ...]  # least peak memory
    least_state: tuple[Winner, ...]  # smallest decoding state
    missing: tuple[UnmeasuredLengths, ...]

    def front(self, mode: str) -> Front | None:
        """The front of a mode; None if nothing was timed in it."""
        return next((front for front in self.fronts if front.mode == mode), None)


def answers(cases: pd.DataFrame, standings: Standings) -> Answers:
    """The answers of a sweep with this summary."""
    ranked = rankable(cases)
    fronts = tuple(_fronts(cases))
    return Answers(
        cases=len(cases),
        timed=int((cases[metrics.TIME] > 0).sum()),
        series=tuple(map(str, dict.fromkeys(cases["series"]))),
        lengths=tuple(sorted(set(map(int, cases["seq_len"])))),
        seq_len=min((front.seq_len for front in fronts), default=None),
        fronts=fronts,
        fastest=tuple(winners(ranked, metrics.TIME, standings)),
        least_memory=tuple(winners(comparable(counted_in_full(ranked)), metrics.MEMORY)),
        least_state=tuple(winners(ranked, metrics.STATE)),
        missing=tuple(_missing(cases)),
    )


def _fronts(cases: pd.DataFrame) -> Iterator[Front]:
    """The front of each mode in which something was timed."""
    timed = cases[cases[metrics.TIME] > 0]
    for mode, of_mode in timed.groupby("mode", sort=False):
        honest = of_mode[of_mode["suspect"] == ""]
        compared = of_mode if honest.empty else honest
        counts = Counter(map(int, compared["seq_len"]))
        reached = of_mode.groupby("series", sort=False)["seq_len"].max()
        seq_len = max(counts, key=lambda n: (counts[n], n))
        yield Front(
            mode=str(mode),
            seq_len=seq_len,
            timed=counts[seq_len],
            series=compared["series"].nunique(),
            reached={str(series): int(n) for series, n in reached.items()},
        )


def _missing(cases: pd.DataFrame) -> Iterator[UnmeasuredLengths]:
    """What was not measured in full, in the order of the plan."""
    lost = cases[cases["outcome"] != Outcome.OK]
    for (mode, series), of_series in lost.groupby(["mode", "series"], sort=False):
        of_series = of_series.sort_values("seq_len", kind="stable")
        # a cause has the name of the outcome that it follows from
        why = of_series["cause"].where(of_series["cause"] != "", of_series["outcome"])
        for _, alike in of_series.groupby(why, sort=False):
            outcome, cause, reason = map(str, alike[["outcome", "cause", "reason"]].iloc[0])
            lengths = tuple(map(int, alike["seq_len"]))
            yield UnmeasuredLengths(str(mode), str(series), outcome, cause, lengths, reason)


def rows(
    cases: pd.DataFrame,
    fronts: Sequence[Front],
    baselines: Mapping[str, Collection[str]],
    speedups: pd.DataFrame | None,
    crossovers: pd.DataFrame,
) -> pd.DataFrame:
    """The summary rows at the front of each mode, joined with further results on their series.

    cases: `summary`.
    baselines: the series to compare with, by mode.
    speedups: `scaling.speedups`; None where nothing is compared.
    crossovers: `concluding.crossovers`, of every ordered pair.

    Added columns: ratio, ratio_low and ratio_high from `speedups`; and those of `crossovers` with a
    baseline, suffixed _ahead where the series comes first and _back where the baseline does.
    """
    places = pd.DataFrame([(f.mode, f.seq_len) for f in fronts], columns=["mode", "seq_len"])
    table = cases.merge(places, how="inner")
    if speedups is not None:
        ratios = {"low": "ratio_low", "high": "ratio_high"}
        table = table.merge(speedups.rename(columns=ratios), how="left")
        for mine, other, suffix in (("series", "other", "_ahead"), ("other", "series", "_back")):
            of_baseline = [
                name in baselines.get(mode, ())
                for mode, name in zip(crossovers["mode"], crossovers[other], strict=True)
            ]
            chosen = pd.Series(of_baseline, index=crossovers.index, dtype=bool)
            of_baselines = crossovers[chosen].set_index(["mode", mine])
            table = table.join(
                of_baselines.drop(columns=other).add_suffix(suffix), on=["mode", "series"]
            )
    return table
