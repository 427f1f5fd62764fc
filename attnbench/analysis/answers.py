"""What a sweep found, as data: the answers with which every report begins."""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import pandas as pd

from attnbench.analysis.standings import Standings, Winner, comparable, winners
from attnbench.analysis.suspects import rankable
from attnbench.metrics import MEMORY, STATE, TIME
from attnbench.records import Cause, Outcome

# outcomes and causes that bound the length of a series; the others say nothing about it
LIMITS = frozenset({
    *(Outcome.OOM, Cause.OOM, Cause.MEMORY_LIMIT),
    *(Outcome.TIMEOUT, Cause.TIMEOUT, Cause.CASE_TIMEOUT),
})  # fmt: skip


@dataclass(frozen=True)
class Unmeasured:
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
        return (self.cause or self.outcome) in LIMITS


@dataclass(frozen=True, kw_only=True)
class Answers:
    """All answers of a sweep.

    `seq_len` is the length of the table of answers: the longest that all mechanisms reached, in
    some form, in all modes; None if nothing was timed.
    """

    cases: int
    timed: int
    series: tuple[str, ...]
    lengths: tuple[int, ...]  # of the plan
    seq_len: int | None
    fastest: tuple[Winner, ...]
    least_memory: tuple[Winner, ...]  # least peak memory
    least_state: tuple[Winner, ...]  # smallest decoding state
    missing: tuple[Unmeasured, ...]


def answers(cases: pd.DataFrame, standings: Standings) -> Answers:
    """The answers of a sweep with this summary."""
    ranked = rankable(cases)
    return Answers(
        cases=len(cases),
        timed=int((cases[TIME] > 0).sum()),
        series=tuple(map(str, dict.fromkeys(cases["series"]))),
        lengths=tuple(sorted(set(map(int, cases["seq_len"])))),
        seq_len=_length(cases),
        fastest=tuple(winners(ranked, TIME, standings)),
        least_memory=tuple(winners(comparable(ranked), MEMORY)),
        least_state=tuple(winners(ranked, STATE)),
        missing=tuple(_missing(cases)),
    )


def _length(cases: pd.DataFrame) -> int | None:
    """The longest length that the most mechanisms reached, in the most modes."""
    timed = cases[cases[TIME] > 0]
    alike = timed.drop_duplicates(["seq_len", "mode", "mechanism", "options", "sizes"])
    reached = Counter(map(int, alike["seq_len"]))
    return max(reached, key=lambda n: (reached[n], n), default=None)


def _missing(cases: pd.DataFrame) -> Iterator[Unmeasured]:
    """What was not measured in full, in the order of the plan."""
    lost = cases[cases["outcome"] != Outcome.OK]
    for (mode, series), own in lost.groupby(["mode", "series"], sort=False):
        own = own.sort_values("seq_len", kind="stable")
        # a cause has the name of the outcome that it follows from
        why = own["cause"].where(own["cause"] != "", own["outcome"])
        for _, alike in own.groupby(why, sort=False):
            outcome, cause, reason = map(str, alike[["outcome", "cause", "reason"]].iloc[0])
            lengths = tuple(map(int, alike["seq_len"]))
            yield Unmeasured(str(mode), str(series), outcome, cause, lengths, reason)


def rows(
    cases: pd.DataFrame,
    answers: Answers,
    baselines: Collection[str],
    speedups: pd.DataFrame | None,
    crossovers: pd.DataFrame,
) -> pd.DataFrame:
    """The summary rows at the length of the answers, joined with further results on their series.

    Added columns: ratio, ratio_low and ratio_high from `speedups`; and those of `crossovers` with a
    baseline, suffixed _ahead where the series comes first and _back where the baseline does.
    """
    found = cases[cases["seq_len"] == answers.seq_len]
    if speedups is not None:
        ratios = {"low": "ratio_low", "high": "ratio_high"}
        found = found.merge(speedups.rename(columns=ratios), how="left")
        for mine, other, suffix in (("series", "other", "_ahead"), ("other", "series", "_back")):
            own = crossovers[crossovers[other].isin(baselines)].set_index(["mode", mine])
            found = found.join(own.drop(columns=other).add_suffix(suffix), on=["mode", "series"])
    return found
