"""Conclusions: answers to questions about the series of a sweep, each with its evidence.

A conclusion answers one `Question` about some series in one mode. Its `Scope` are the lengths at
which everything that it speaks of was measured, its `Basis` says whether the numbers were measured,
counted or predicted, and its `Answer` is one of a closed list. Every sentence, bold number and mark
of a report is written from one, so that none says more than what was measured:

- *all* and *never* need a scope that spans the sweep: at least `FEWEST` lengths, and all of the
  sweep in that mode. Otherwise the answer holds where it was measured.
- A winner is the cheapest of the series that were measured at that length. What was `left_out`
  there, and may be cheaper, belongs to the conclusion.
- What is not known has the option of a sweep that would decide it, if there is one.
"""

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

FEWEST = 3  # lengths, of which something can be said to hold at all


class Question(StrEnum):
    """What is asked about series."""

    FASTEST = "fastest"  # at one length
    LEAST_MEMORY = "least memory"  # at one length
    SMALLEST_STATE = "smallest state"  # at one length
    FASTER_FROM = "faster from"  # at which lengths one series is faster than another
    LIMIT = "limit of length"  # at which length a series runs out of memory or time
    EXPONENT = "exponent"  # with which power of N a cost grows
    CLAIM = "claim"  # whether what a paper claims holds here
    DIFFERENCE = "difference"  # whether one series takes longer than another at one length
    CHANGE = "change"  # what a cost of a series became from one sweep to another
    FITS = "fits"  # whether a series fits into a limit of memory at one length


class Answer(StrEnum):
    """All answers, by the questions that they answer."""

    # fastest, least memory, smallest state
    WINNER = "winner"  # one series
    TIE = "tie"  # several series, of which none is shown to cost more than the first
    ALONE = "measured alone"  # a single series, which is compared with nothing
    # faster from
    ALL = "always"  # at all lengths of the sweep
    NEVER = "never"  # at none
    FASTER_AT = "faster where measured"  # at each length of a scope that does not span the sweep
    SLOWER_AT = "slower where measured"  # at each length of such a scope
    FROM = "from"  # from a length on, to the end of the scope
    UP_TO = "up to"  # from the beginning of the scope to a length
    SLOWER_FROM = "slower from"  # at the long end of the scope; short lengths are not decided
    # limit of length
    ENDS = "ends"
    # exponent
    GROWS = "grows as a power"
    BENDS = "still bends"
    # claim
    REPRODUCED = "reproduced"
    COUNTED = "true of exact counts"
    CONTRADICTED = "contradicted"
    # difference, change
    COSTS_MORE = "costs more"
    COSTS_LESS = "costs less"
    SAME = "same"  # no change, to within what a verdict allows
    # fits
    FITS = "fits"
    TOO_LARGE = "does not fit"
    # any question
    NOT_KNOWN = "not known"


class Basis(StrEnum):
    """What the numbers of a conclusion are."""

    MEASURED = "measured"  # with the error of a measurement
    COUNTED = "counted"  # exact: bytes, FLOPs, parameters
    PREDICTED = "predicted"  # from other lengths or from declared work


class Expected(StrEnum):
    """What is expected of a series that was not measured, beside the winner."""

    LESS = "predicted to need less"
    MORE = "predicted to need more"
    UNKNOWN = "not known"


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The lengths at which everything that a conclusion speaks of was measured, from the shortest.

    `of_sweep` are all lengths of the sweep in that mode, `sizes` those in the names of the series
    where a sweep crosses sizes (`D=64 S=4`), and `step` the tokens of a step in decode.
    """

    lengths: tuple[int, ...]
    of_sweep: tuple[int, ...]
    sizes: str = ""
    step: int = 1

    @property
    def spans(self) -> bool:
        """Whether *all* and *never* may be said of these lengths."""
        return len(self.lengths) >= FEWEST and self.is_whole

    @property
    def is_whole(self) -> bool:
        """Whether they are all lengths of the sweep."""
        return self.lengths == self.of_sweep


@dataclass(frozen=True, kw_only=True)
class Value:
    """A number with its interval; each is NaN where unknown.

    Without `low` the number is at most `high`: where it lies below that was not measured.
    """

    point: float = math.nan
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A series that was planned at a length, could run there, and has no measured cost."""

    series: str
    expected: Expected
    over: float = math.nan  # its predicted cost over the least that was measured


@dataclass(frozen=True, kw_only=True)
class Conclusion:
    """An answer about `series`, compared with those `against` which it was measured.

    The value depends on the question: of the cheapest series, the cost of the `rival` over its own
    at the last length of the scope; of *faster from*, a length, which lies between measured ones;
    of a limit the length that was not reached; of an exponent the power of N; of a claim what it is
    held against; of a difference the cost over that of the other series; of a change the cost over
    that in the first sweep, at the length of the scope where it is the median; of *fits* the bytes
    of the peak.
    """

    question: Question
    answer: Answer
    mode: str
    scope: Scope
    basis: Basis
    series: tuple[str, ...]
    against: tuple[str, ...] = ()
    value: Value = Value()
    quantity: str = ""  # the key of the metric, where a question is asked of several
    rival: str = ""  # the cheapest that is shown to cost more
    left_out: tuple[LeftOut, ...] = ()
    missing: tuple[int, ...] = ()  # lengths that were asked about, and are not in the scope
    reason: str = ""  # of a limit, of what is not known; the evidence on a claim
    decided_by: str = ""  # options of a sweep that would decide it or widen its scope

    @property
    def is_known(self) -> bool:
        """Whether the question is answered."""
        return self.answer is not Answer.NOT_KNOWN

    @property
    def measured(self) -> int:
        """The number of series that were compared."""
        return len(self.series) + len(self.against)

    @property
    def best(self) -> tuple[str, ...]:
        """The series that are written in bold: a winner of at least two, or those that tie."""
        return self.series if self.answer in (Answer.WINNER, Answer.TIE) else ()

    def expected(self, expected: Expected) -> tuple[str, ...]:
        """The series left out of which this is expected."""
        return tuple(each.series for each in self.left_out if each.expected is expected)


def about(
    conclusions: Iterable[Conclusion],
    question: Question,
    mode: str | None = None,
    series: str | None = None,
    against: Collection[str] | None = None,
) -> Iterator[Conclusion]:
    """The conclusions on a question: in a mode, on a series, compared with one of these."""
    return (
        each
        for each in conclusions
        if each.question is question
        and mode in (None, each.mode)
        and (series is None or series in each.series)
        and (against is None or not {*against}.isdisjoint(each.against))
    )
