"""What a sweep has done and has still to do, within its budget and the memory of the machine."""

import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from attnbench.analysis.costs import MARGIN, CostKind, Costs, Rates
from attnbench.analysis.statistics.laps import Laps, by_pair, sweep_slope
from attnbench.devices import find
from attnbench.records import (
    Block,
    Case,
    Cause,
    Outcome,
    Part,
    Planned,
    Request,
    Run,
    Series,
    Settings,
    Workload,
    modes,
    outcomes,
    units,
)
from attnbench.records.notes import Note
from attnbench.running.race import failure_in_later_race, next_pair
from attnbench.running.suspicion import is_suspicious, with_sign
from attnbench.running.visit_costs import VisitCosts, assumed_rates

OVERTIME = 5.0  # a visit may take this many times its prediction, and at least
AT_LEAST_S = 60.0
# a case of which nothing is known may take this share of the budget, if that is more
UNKNOWN_SHARE = 1 / 4
COMPILING_S = 300.0  # further seconds for compiling, which depends on more than FLOPs
# Samples and warm-up of the first round take at most these shares of a case's even share of the
# budget, so that long cases are reached
FIRST_SAMPLE = 1 / 8
FIRST_WARMUP = 1 / 32


@dataclass(kw_only=True)
class Agenda:
    """The plan of a sweep or of a part of it, its runs, and what is left to do in this round.

    Only `begin`, `take`, `owe` and `record` change it; whoever holds one asks it, and assigns
    nothing. `order` begins rounds, takes the cases of visits and records what ran; `weighing` owes
    and records memory that is measured beside races, as `foresee` does in a dry run.

    request:      what was asked of the sweep
    plan:         the cases, those that cannot run included
    memory_bytes: what a case may use
    earlier:      the runs in the journal that need not be repeated
    clock:        seconds from any start
    begun:        when the budget began, by that clock; None: now
    rates:        measured peaks of the machine; None: those of its kind
    """

    request: Request
    plan: Sequence[Planned]
    memory_bytes: float
    earlier: Iterable[Run] = ()
    clock: Callable[[], float] = time.monotonic
    begun: float | None = None
    rates: Rates | None = None
    round: int = field(default=0, init=False)
    cut_short: bool = field(default=False, init=False)  # the budget ended before something did

    def __post_init__(self) -> None:
        self.begun_s = self.clock() if self.begun is None else self.begun
        self.blocks = blocks(self.plan)
        self.curves: dict[Case, list[Planned]] = {}
        for planned in self.plan:
            self.curves.setdefault(curve(planned.case), []).append(planned)
        self.device = find(self.request.device)
        self.first = first_settings(self.request, len(self.plan))
        rates = self.rates or assumed_rates(self.request)
        self.costs = Costs(self.plan, rates, self.device.context_bytes, self.device.start_s)
        self.visit_costs = VisitCosts(self.costs)
        cases = {planned.case.key: planned for planned in self.plan}
        # of each case, by round: what was measured of its time; and whether its memory was
        self.runs: dict[str, dict[int, Run]] = {key: {} for key in cases}
        self.weighed = set[str]()
        # those whose memory is being measured beside races, by the case's key
        self.owed: dict[str, Planned] = {}
        for run in self.earlier:
            if run.case in cases:
                self._learn(cases[run.case], run)
        # for their first visit, by the case's key
        unfinished = (p for p in self.plan if self.lacks_memory(p) or not self.is_done(p))
        self.waiting = {p.case.key: p for p in unfinished if not p.refusal}

    def begin(self, number: int) -> None:
        """Begin the round of this number, or go on with it."""
        self.round = number

    def take(self, cases: Iterable[Planned]) -> None:
        """Take cases off those that wait for their first visit: they are visited now."""
        for planned in cases:
            self.waiting.pop(planned.case.key, None)

    def record(self, cases: Iterable[Planned], runs: Iterable[Run]) -> None:
        """Take into account what ran of these cases in this round.

        The budget left the others out: in the first round they wait again.
        """
        rest = {planned.case.key: planned for planned in cases}
        for run in runs:
            self._learn(rest.pop(run.case), run)
        for key, planned in rest.items():
            self.cut_short = True
            if not self.round and not self.is_done(planned):
                self.waiting[key] = planned

    def owe(self, planned: Planned) -> None:
        """Take into account that the memory of a case will be measured beside races."""
        self.owed[planned.case.key] = planned

    def _learn(self, planned: Planned, run: Run) -> None:
        """Take a run of a case into account."""
        self.visit_costs.learn(planned, run)
        if run.part is Part.MEMORY:
            self.weighed.add(run.case)
            self.owed.pop(run.case, None)
        else:
            self.runs[run.case][run.round] = self.with_earlier_laps(planned, run)

    def with_earlier_laps(self, planned: Planned, run: Run) -> Run:
        """A run that is not yet recorded, with the laps of earlier races of its round.

        It is marked as suspect where it took much less time than the first round.
        """
        if run.part is Part.MEMORY:
            return run
        timed = self.timed_runs(planned)
        if before := timed.get(run.round):
            run = with_later_laps(before, run)
        return run if planned.own else with_sign(timed.get(0), run)

    @property
    def settings(self) -> Settings:
        """The settings of this round."""
        return self.request.settings if self.round else self.first

    @property
    def over_budget(self) -> bool:
        """Whether the budget left something out."""
        return self.cut_short or any(self.reason_to_skip(p) is None for p in self.waiting.values())

    def series(self, planned: Planned) -> Series:
        """The series of a case."""
        return self.costs.series[planned.case.key]

    def left_s(self) -> float:
        """Seconds left of the budget; infinite without one."""
        if self.request.budget_s is None:
            return math.inf
        return self.request.budget_s - (self.clock() - self.begun_s)

    def free_s(self) -> float:
        """Seconds left of the budget, without those that measurements beside races may need.

        Where a race leaves them no time, they take time of their own in the end.
        """
        return self.left_s() - sum(map(self.costs.memory_s, self.owed.values()))

    def cheapest_within_budget(self, cases: Iterable[Planned], reserve_s: float) -> list[Planned]:
        """The cheapest of these cases whose first visits leave `reserve_s` of the budget."""
        chosen: list[Planned] = []
        left_s = self.free_s() - reserve_s
        costs = [(self.cost_s(planned), planned) for planned in cases]
        for cost_s, planned in sorted(costs, key=lambda pair: pair[0]):
            needed_s = cost_s + (0.0 if self.is_done(planned) else self.link_s(planned.block))
            if needed_s <= left_s and self.reason_to_skip(planned) is None:
                chosen.append(planned)
                left_s -= needed_s
        return chosen

    def skipped_run(self, planned: Planned) -> Run:
        """What is stored of a case that cannot run, or still waits at the end: why."""
        left_out = Run(case=planned.case.key, part=Part.TIME, round=0, outcome=Outcome.SKIPPED)
        if planned.refusal:
            return replace(left_out, outcome=Outcome.UNSUPPORTED, reason=planned.refusal)
        cause, reason = self.reason_to_skip(planned) or (
            Cause.BUDGET,
            self.budget_reason(planned),
        )
        return replace(left_out, cause=cause, reason=reason)

    def budget_reason(self, planned: Planned) -> str:
        """What is left of the budget, and what a case is predicted to take."""
        left_s = self.left_s()
        rest_of_budget = f"{units.seconds(left_s)} left" if left_s >= 1 else "nothing left"
        costs = f"{self.prediction_text(planned)}, {units.seconds(self.cost_s(planned))} in total"
        if self.costs.is_unknown(planned, CostKind.SECONDS):
            costs = "its costs are unknown"
        return f"would exceed --budget ({rest_of_budget}): {costs}"

    def prediction_text(self, planned: Planned) -> str:
        """What an iteration is predicted to take, in words."""
        return f"predicted {units.seconds(self.costs.iteration_s(planned))} per iteration"

    def reason_to_skip(self, planned: Planned) -> tuple[Cause, str] | None:
        """Why a case cannot run whatever the budget, as far as known by now, or None.

        After a shorter length of its curve ran out of memory or time, it is not tried.
        """
        w = planned.case.workload
        for other, run in self.on_curve(planned):
            # of several fixed batches; c // N · N is more than c / 2
            shorter = other.seq_len < w.seq_len and other.tokens <= 2 * w.tokens
            row = outcomes.ending(run.outcome, run.cause or "")
            if shorter and row.beyond is not None:
                reason = f"not run: already {row.already} at N = {units.count(other.seq_len)}"
                return row.beyond, reason
        needed_bytes = self.costs.needed_bytes(planned)
        if needed_bytes > self.memory_bytes and not self.costs.is_unknown(planned, CostKind.BYTES):
            most = units.size(int(self.memory_bytes))
            needed_size = units.size(needed_bytes / MARGIN)
            spare = f"{100 * (MARGIN - 1):.0f} % to spare"
            reason = f"needs about {needed_size} and {spare}; the limit on memory is {most}"
            return Cause.MEMORY_LIMIT, reason
        visit_s = self.visit_s(planned)
        limit_s = self.request.case_timeout_s
        if limit_s and visit_s > limit_s and not self.costs.is_unknown(planned, CostKind.SECONDS):
            reason = f"would exceed --case-timeout ({units.seconds(limit_s)}):"
            reason += f" {self.prediction_text(planned)}, {units.seconds(visit_s)} per round"
            return Cause.CASE_TIMEOUT, reason
        return None

    def link(self, block: Block) -> Planned | None:
        """What races again with cases not yet timed in this round; None before the first race."""
        timed = [planned for planned in self.blocks[block] if self.was_timed(planned)]
        return min(timed, key=self.costs.iteration_s, default=None)

    def link_s(self, block: Block) -> float:
        """Predicted seconds of what races again with cases not yet timed in this round."""
        link = self.link(block)
        return self.visit_s(link) if link else 0.0

    def cost_s(self, planned: Planned) -> float:
        """Predicted seconds of what is not done of a case's first visit: time and memory."""
        visit_s = 0.0 if self.is_done(planned) else self.visit_s(planned)
        return visit_s + (self.costs.memory_s(planned) if self.lacks_memory(planned) else 0.0)

    def visit_s(self, planned: Planned) -> float:
        """Predicted seconds of one visit to a case."""
        return self.visit_costs.seconds(planned, self.settings, self.is_suspicious(planned))

    def untimed_s(self, planned: Planned) -> float:
        """Predicted seconds of one visit to a case in which none of its laps runs."""
        return self.visit_s(planned) - self.visit_costs.laps_s(planned, self.settings)

    def is_suspicious(self, planned: Planned) -> bool:
        """Whether this round's visit to a case is to look for odd behaviour in it."""
        return is_suspicious(
            planned,
            [*self.on_curve(planned)],
            is_later_round=self.round > 0,
            iteration_s=self.costs.iteration_s(planned),
            samples_s=self.settings.sample_s,
        )

    def timeout_s(self, planned: Planned, wall_s: float = 0.0) -> float:
        """Seconds until the process of a case is killed; `wall_s` of an iteration if known."""
        visit_s = self.visit_s(planned)
        examined = self.is_suspicious(planned)
        if wall_s:
            visit_s = self.visit_costs.seconds_of_measured(planned, self.settings, wall_s, examined)
        longest_s = max(AT_LEAST_S, OVERTIME * visit_s)
        if self.is_anyones_guess(planned):
            longest_s = max(longest_s, UNKNOWN_SHARE * (self.request.budget_s or math.inf))
        if planned.compiles or planned.tunes:
            longest_s += COMPILING_S
        if examined:  # the first time, nobody has measured how long that takes
            iterations = modes.find(planned.case.workload.mode).examined_iterations
            longest_s += iterations * (wall_s or self.costs.wall_s(planned))
        limit_s = self.request.case_timeout_s
        return longest_s if limit_s is None else min(longest_s, limit_s)

    def is_anyones_guess(self, planned: Planned) -> bool:
        """Whether nothing is known of how long a case takes: nothing is declared or measured."""
        return not (planned.declared or self.costs.curve(planned, CostKind.SECONDS))

    def with_overtime(self, planned: Planned, run: Run) -> Run:
        """A run of a case, marked if its process was ended at no limit that anyone set.

        It then took several times what was predicted, for which the machine may be the reason.
        """
        limit_s = self.request.case_timeout_s
        by_limit = limit_s is not None and run.elapsed_s >= limit_s
        if run.outcome is not Outcome.TIMEOUT or by_limit:
            return run
        because = f"as {units.seconds(self.visit_s(planned))} were predicted"
        if self.is_anyones_guess(planned):
            because = "as nothing is known of its costs; a larger --budget gives it more time"
        reason = f"{run.reason}, {because}"
        return replace(run, cause=Cause.OVERTIME, reason=reason)

    def on_curve(self, planned: Planned) -> Iterator[tuple[Workload, Run]]:
        """What was measured of the time of all lengths of a case's curve."""
        for other in self.curves[curve(planned.case)]:
            for run in self.runs[other.case.key].values():
                yield other.case.workload, run

    def lacks_memory(self, planned: Planned) -> bool:
        """Whether the memory of the case is still to be measured."""
        return planned.case.key not in self.weighed

    def timed_runs(self, planned: Planned) -> dict[int, Run]:
        """The runs that timed the case, by round."""
        runs = self.runs[planned.case.key].items()
        return {number: run for number, run in runs if run.outcome is Outcome.OK}

    def was_timed(self, planned: Planned) -> bool:
        """Whether this round timed the case."""
        run = self.runs[planned.case.key].get(self.round)
        return run is not None and run.outcome is Outcome.OK

    def is_done(self, planned: Planned) -> bool:
        """Whether this round has an outcome of the case."""
        return self.round in self.runs[planned.case.key]

    def repeatable_cases(self) -> list[Planned]:
        """Cases that were timed and that no round failed to time."""
        runs = self.runs
        return [p for p in self.plan if runs[p.case.key] and self.timed_runs(p) == runs[p.case.key]]

    def laps(self) -> dict[tuple[Series, Block], dict[int, Laps]]:
        """The pairs of laps of each round, by series and block, of cases that can be repeated."""
        cases = {planned.case.key: planned for planned in self.repeatable_cases()}
        every = [run for key in cases for run in self.runs[key].values()]
        runs = [run for run in every if run.samples]  # a dry run has none
        slope = sweep_slope(runs, {key: planned.block for key, planned in cases.items()})
        laps: dict[tuple[Series, Block], dict[int, Laps]] = {}
        for run in runs:
            case = self.series(cases[run.case]), cases[run.case].block
            laps.setdefault(case, {})[run.round] = by_pair(run.samples, slope)
        return laps

    def runs_of(self, block: Block) -> dict[Series, tuple[Run, ...]]:
        """The runs of each series that was timed in a block, round by round."""
        timed = {self.series(planned): self.timed_runs(planned) for planned in self.blocks[block]}
        return {
            series: tuple(runs[number] for number in sorted(runs))
            for series, runs in timed.items()
            if runs
        }

    def next_lap(self, block: Block) -> int:
        """The next lap of a block in this round."""
        runs = [self.timed_runs(planned).get(self.round) for planned in self.blocks[block]]
        return next_pair(s.lap for run in runs if run for s in run.samples if s.lap is not None)

    def order_generator(self) -> random.Random:
        """The random generator of this round's order."""
        return random.Random(f"{self.request.settings.seed}-{self.round}")


def first_settings(request: Request, cases: int) -> Settings:
    """The settings of the first round: of so many cases, none takes much of the budget."""
    settings = request.settings
    if request.budget_s is None or not cases:
        return settings
    share_s = request.budget_s / cases
    return replace(
        settings,
        sample_s=min(settings.sample_s, FIRST_SAMPLE * share_s),
        warmup_s=min(settings.warmup_s, FIRST_WARMUP * share_s),
    )


def blocks(plan: Iterable[Planned]) -> dict[Block, list[Planned]]:
    """The cases of each block."""
    blocks: dict[Block, list[Planned]] = {}
    for planned in plan:
        blocks.setdefault(planned.block, []).append(planned)
    return blocks


def with_later_laps(before: Run, run: Run) -> Run:
    """A run with the laps that a later race of its round added, or what became of that."""
    notes = dict(before.notes)
    if run.outcome is not Outcome.OK:
        notes[Note.LATER] = failure_in_later_race(run.outcome, run.reason)
    return replace(
        before,
        samples=before.samples + run.samples,
        notes=notes,
        elapsed_s=before.elapsed_s + run.elapsed_s,
    )


def curve(case: Case) -> Case:
    """What the cases of one curve have in common, over all lengths."""
    return replace(case, workload=replace(case.workload, batch=1, seq_len=1))
