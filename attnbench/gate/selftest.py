"""The gate on known slowdowns: one mechanism against itself with extra work.

Every window of consecutive pairs that is long enough for both stages is judged like a check.
Neighbouring windows share pairs, so the rates rest on fewer independent checks than they count;
`Detection.pairs` is the number of pairs behind them.
"""

import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from attnbench.errors import CannotRun, UsageError
from attnbench.gate.cases import CheckedCase, CheckPlan, planned
from attnbench.gate.check import compared_selections, expand_forms
from attnbench.gate.measuring import Runner
from attnbench.gate.repository import top
from attnbench.gate.rule import Evidence, Pair, Stage, judge
from attnbench.metrics import TIME
from attnbench.records import Outcome, Selection
from attnbench.run.pairs import AGAIN, BASE, START_S, Failed, Laps, TreeRace, tree_round
from attnbench.run.processes import ServerHandle
from attnbench.run.workers import OverBudget
from attnbench.statistics.verdict import Verdict

SHARES = (0.0, 0.02, 0.05, 0.10, 0.20)
MARGIN = 1.5  # of a suggested budget: a visit on a busy machine takes longer than expected
# the share of checks that must find a slowdown for it to count as detectable
RELIABLY = 0.8


@dataclass(frozen=True, kw_only=True)
class Rate:
    """The number of verdicts of each kind in `checks` with `share` extra work."""

    share: float
    checks: int
    slower: int
    faster: int
    unsure: int

    @property
    def detected(self) -> float:
        """The share of checks whose verdict was `slower`."""
        return self.slower / self.checks


@dataclass(frozen=True, kw_only=True)
class Detection:
    """Verdict rates of the gate on one machine, by share of extra work."""

    rates: tuple[Rate, ...]
    pairs: int

    @property
    def false_alarms(self) -> Rate:
        """The rate without extra work."""
        return next(rate for rate in self.rates if rate.share == 0)

    @property
    def smallest(self) -> float | None:
        """The least share at and above which every slowdown is found reliably."""
        least = None
        for rate in sorted(self.rates, key=lambda rate: -rate.share):
            if rate.share == 0 or rate.detected < RELIABLY:
                break
            least = rate.share
        return least


def detected(
    plan: CheckPlan, selections: Sequence[Selection], budget_s: float, runner: Runner
) -> Detection:
    """The verdict rates of the gate on injected slowdowns, from as many pairs as the budget allows.

    Raises `UsageError` unless one mechanism is selected, and `CannotRun` as soon as the budget is
    known to be too small for the pairs of one check.
    """
    begun = time.monotonic()
    pairs = plan.pairs + plan.confirm
    refuse_below(least_s(plan, len(SHARES) + 2), budget_s)
    root = top(Path.cwd())
    laps = []
    with runner.within(budget_s):
        compared = tuple(expand_forms(compared_selections(selections, root), runner, root))
        if len(compared) != 1:
            raise UsageError("a selftest takes one mechanism; name one with --models")
        (case,) = planned(plan, compared)
        race = prepare(runner.server, root, case, SHARES, plan)
        spent_s = time.monotonic() - begun
        refuse_below(spent_s + pairs * race.cost_s, budget_s)
        fit = int((budget_s - spent_s) / race.cost_s)
        runner.announce(f"about {fit} pairs of processes fit into {budget_s:.0f} s")
        draw = random.Random(plan.seed)
        for lap in visits(runner.server, root, race, draw, begun + budget_s):
            laps.append(lap)
            runner.observe(f"{len(laps)} pairs")
    if len(laps) < pairs:
        raise CannotRun(
            f"only {len(laps)} of {pairs} pairs fitted into {budget_s:.0f} s, which was fewer than"
            " expected; raise --budget"
        )
    found = {share: against_base(laps, with_extra(share)) for share in SHARES}
    return detection(found, against_base(laps, AGAIN), plan)


def with_extra(share: float) -> str:
    """The entrant with this share of extra work."""
    return f"+{share:.0%}"


def prepare(
    server: ServerHandle, tree: Path, case: CheckedCase, shares: Sequence[float], plan: CheckPlan
) -> TreeRace:
    """A race of base against itself, and against itself with `shares` of extra work.

    The work is a number of small products. Raises `CannotRun`.
    """
    try:
        with tree_round(server, {BASE: tree}, random.Random(0)) as processes:
            race = TreeRace(builds={BASE: case.build_request(BASE)}, rounds=4)
            batch = plan.batch_for(case.workload, min(race.run(processes)[TIME][BASE]))
            asked = case.build_request(BASE, batch)
            race = TreeRace(builds={BASE: asked}, rounds=4)
            took_s = median(race.run(processes)[TIME][BASE])
            worker = processes.running[BASE]
            calibrated = worker.ask(race.timeout_s, do="calibrate", device=plan.device)
            if calibrated["outcome"] != Outcome.OK:
                raise Failed(BASE, calibrated)
            product_s = calibrated["seconds"]
    except Failed as failed:
        raise CannotRun(str(failed)) from failed
    extra = {
        with_extra(share): {**asked, "extra": round(share * took_s / product_s)} for share in shares
    }
    iterations = max(1, round(plan.iteration_s / took_s))
    return TreeRace(
        builds={BASE: asked, AGAIN: asked, **extra},
        rounds=plan.rounds_for(3, iterations * took_s),
        iterations=iterations,
        iteration_s=took_s,
    )


def visits(
    server: ServerHandle, tree: Path, race: TreeRace, draw: random.Random, end_s: float
) -> Iterator[Laps]:
    """The laps of one visit after another until `end_s`. Raises `CannotRun`."""
    trees = dict.fromkeys(race.builds, tree)
    while time.monotonic() + race.cost_s < end_s:
        try:
            with tree_round(server, trees, draw) as processes:
                yield race.run(processes)[TIME]
        except OverBudget:
            return
        except Failed as failed:
            raise CannotRun(str(failed)) from failed


def against_base(laps: Sequence[Laps], entrant: str) -> tuple[Pair, ...]:
    """The entrant against base in every visit."""
    return tuple(Pair.of(lap[BASE], lap[entrant]) for lap in laps)


def least_s(plan: CheckPlan, entrants: int) -> float:
    """About the least time that the pairs of one check take, whatever the mechanism."""
    samples_s = 2 * plan.rounds * plan.iteration_s  # longer iterations get fewer rounds
    return (plan.pairs + plan.confirm) * entrants * (START_S + samples_s)


def refuse_below(needed_s: float, budget_s: float) -> None:
    """Raise `CannotRun` with a sufficient budget if this one is too small."""
    if budget_s < needed_s:
        enough = 10 * math.ceil(MARGIN * needed_s / 10)
        raise CannotRun(
            f"a selftest needs at least {needed_s:.0f} s here, --budget gives {budget_s:.0f} s;"
            f" try --budget {enough}s"
        )


def detection(
    shares: Mapping[float, Sequence[Pair]], again: Sequence[Pair], plan: CheckPlan
) -> Detection:
    """Rates from the pairs by share of extra work; `again` is base over base.

    The pairs must suffice for both stages of one check.
    """
    length = plan.pairs + plan.confirm
    assert len(again) >= length
    rates = []
    for share, pairs in shares.items():
        verdicts = []
        for start in range(len(again) - length + 1):
            middle, end = start + plan.pairs, start + length
            first, second = (
                Stage(head=tuple(pairs[part]), again=tuple(again[part]))
                for part in (slice(start, middle), slice(middle, end))
            )
            evidence = Evidence(name="", first=first, second=second)
            verdicts.append(judge([evidence], plan.threshold)[0].verdict)
        counts = {v: verdicts.count(v) for v in (Verdict.SLOWER, Verdict.FASTER, Verdict.UNSURE)}
        rates.append(Rate(share=share, checks=len(verdicts), **counts))
    return Detection(rates=tuple(rates), pairs=len(again))
