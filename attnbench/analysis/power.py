"""What the gate finds of a known slowdown, and how often it finds one where there is none.

Every run of consecutive pairs that is long enough for both stages is judged as a check would
judge it. Neighbouring runs share pairs, so the rates rest on fewer independent checks than they
count; `pairs` says on how many. Where there are too few for one run, the last is followed by the
first, and the second stage sees some pairs again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from attnbench.analysis.gate import Stage, Trial, judge
from attnbench.analysis.verdict import Verdict

# the share of checks in which a slowdown must be found to be called detectable
FOUND = 0.8


@dataclass(frozen=True, kw_only=True)
class Rate:
    """Of `checks` with `share` more work, how many were called what."""

    share: float
    checks: int
    slower: int
    faster: int
    unsure: int

    @property
    def found(self) -> float:
        """The share of checks that called it slower."""
        return self.slower / self.checks


@dataclass(frozen=True, kw_only=True)
class Power:
    """The gate on one machine, by share of extra work."""

    rates: tuple[Rate, ...]
    pairs: int

    @property
    def false_alarms(self) -> Rate:
        """The rate where nothing was added."""
        return next(rate for rate in self.rates if rate.share == 0)

    @property
    def smallest(self) -> float | None:
        """The least share from which on all are found in four of five checks."""
        least = None
        for rate in sorted(self.rates, key=lambda rate: -rate.share):
            if rate.share == 0 or rate.found < FOUND:
                break
            least = rate.share
        return least


def power(
    logs: Mapping[float, Sequence[float]],
    again: Sequence[float],
    *,
    first: int,
    second: int,
    threshold: float,
) -> Power:
    """Rates from the pairs' log ratios, by share of extra work; `again` is base over base."""
    whole = len(again) - first - second + 1
    starts = range(whole if whole > 0 else len(again))
    rates = []
    for share, ratios in logs.items():
        calls = [
            judge([_trial(ratios, again, i, first, second)], threshold)[0].verdict for i in starts
        ]
        rates.append(
            Rate(
                share=share,
                checks=len(calls),
                slower=calls.count(Verdict.SLOWER),
                faster=calls.count(Verdict.FASTER),
                unsure=calls.count(Verdict.UNSURE),
            )
        )
    return Power(rates=tuple(rates), pairs=len(again))


def _trial(
    logs: Sequence[float], again: Sequence[float], start: int, first: int, second: int
) -> Trial:
    pairs = [(start + i) % len(again) for i in range(first + second)]
    stages = [
        Stage(head=tuple(logs[i] for i in part), again=tuple(again[i] for i in part))
        for part in (pairs[:first], pairs[first:])
    ]
    return Trial(name="", first=stages[0], second=stages[1])
