"""How often the gate finds a known slowdown, and how often it finds one where there is none.

Every window of consecutive pairs that is long enough for both stages is judged as a check would
judge it. Neighbouring windows share pairs, so the rates rest on fewer independent checks than
they count; `pairs` is the number of pairs that they rest on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from attnbench.analysis.verdict import Verdict
from attnbench.gate.pairs import Pair, Stage, Trial
from attnbench.gate.rule import judge

# the share of checks that must find a slowdown for it to be called detectable
RELIABLY = 0.8


@dataclass(frozen=True, kw_only=True)
class Rate:
    """Verdicts of `checks` with `share` more work: how many were of each kind."""

    share: float
    checks: int
    slower: int
    faster: int
    unsure: int

    @property
    def detected(self) -> float:
        """The share of checks that called it slower."""
        return self.slower / self.checks


@dataclass(frozen=True, kw_only=True)
class Detection:
    """The gate on one machine, by share of extra work."""

    rates: tuple[Rate, ...]
    pairs: int

    @property
    def false_alarms(self) -> Rate:
        """The rate where nothing was added."""
        return next(rate for rate in self.rates if rate.share == 0)

    @property
    def smallest(self) -> float | None:
        """The least share from which on every slowdown is found reliably."""
        least = None
        for rate in sorted(self.rates, key=lambda rate: -rate.share):
            if rate.share == 0 or rate.detected < RELIABLY:
                break
            least = rate.share
        return least


def detection(
    shares: Mapping[float, Sequence[Pair]],
    again: Sequence[Pair],
    *,
    first: int,
    second: int,
    threshold: float,
) -> Detection:
    """Rates from the pairs by share of extra work; `again` is base over base.

    There are at least `first` + `second` pairs, the stages of one check.
    """
    assert len(again) >= first + second
    rates = []
    for share, pairs in shares.items():
        calls = [
            judge([_trial(pairs[i:], again[i:], first, second)], threshold)[0].verdict
            for i in range(len(again) - first - second + 1)
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
    return Detection(rates=tuple(rates), pairs=len(again))


def _trial(pairs: Sequence[Pair], again: Sequence[Pair], first: int, second: int) -> Trial:
    stages = [
        Stage(head=tuple(pairs[part]), again=tuple(again[part]))
        for part in (slice(first), slice(first, first + second))
    ]
    return Trial(name="", first=stages[0], second=stages[1])
