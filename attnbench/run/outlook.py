"""What a session knows: its plan, how much of it is done, and what the rest will take."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from attnbench import units
from attnbench.devices.finding import find
from attnbench.records import Block, Cause, Clock, Part, Planned, Request, Settings
from attnbench.run import schedule
from attnbench.run.history import History, blocks
from attnbench.run.predict import Rates
from attnbench.run.schedule import Refusal
from attnbench.statistics.ratios import Certainty

OVERTIME = 5.0  # a visit may take this many times its prediction, and at least
AT_LEAST_S = 60.0
COMPILING_S = 300.0  # further seconds for compiling, which depends on more than FLOPs
# Steps are short, but building their modules and states is not: samples last up to `PAYS` times the
# rest of a process's time, so that nine tenths of a visit measure; but rounds are what is
# repeated, so a visit must not become much longer than that of a pass.
PAYS, LONGER = 10.0, 3.0
# share of the remaining budget that a comparison with a prompt may take: it checks filled states
# and narrows no ratio; if six series all compare, a third of the budget is left for rounds
COMPARING = 0.15
# share of the budget for extras before the rest is repeated, since they were requested too
EXTRAS = 0.15
WANTED_ROUNDS = 3  # of the other cases, before the budget is spent on extras
WANTED_EXTRA = 2  # of an extra, before it is spent on longer ones


@dataclass(kw_only=True)
class Outlook:
    """The plan of a session, its history, and predictions of what is left to do in this round.

    `finished` are the runs in the journal that count, as (case key, part, round). `memory_bytes` is
    what a case may use. `share` has the rounds of each block that are to be measured, by default
    all.
    """

    request: Request
    plan: tuple[Planned, ...]
    memory_bytes: int
    finished: frozenset[tuple[str, Part, int]] = frozenset()
    clock: Callable[[], float] = time.monotonic
    begun: float = math.nan  # when the budget began; NaN: when `run` is called
    share: Mapping[Block, tuple[int, ...]] | None = None
    rates: Rates | None = None  # measured peaks of the machine
    round: int = 0  # of this session: an index of the rounds in its share
    memory_reserve_s: float = 0.0  # reserved from the budget, for measuring memory
    certain: Mapping[Block, Certainty] = field(default_factory=dict)  # of ratios, by the last round
    history: History = field(init=False)
    blocks: Mapping[Block, Sequence[Planned]] = field(init=False)

    def __post_init__(self) -> None:
        rounds = tuple(range(self.request.rounds))
        every = dict.fromkeys(blocks(self.plan), rounds)
        self.rounds = every if self.share is None else self.share
        self.plan = tuple(planned for planned in self.plan if planned.block in self.rounds)
        self.blocks = blocks(self.plan)
        self.device = find(self.request.device)
        memory_measured = {key for key, part, _ in self.finished if part == Part.MEMORY}
        self.history = History(
            plan=self.plan,
            memory_measured=memory_measured,
            context_bytes=self.device.context_bytes,
            rates=self.rates,
        )
        self.extras = schedule.extras(self.plan, self.request.batch_tokens)
        early = (sum(r < WANTED_ROUNDS for r in own) for own in self.rounds.values())
        self.wanted = max((1, *early))  # of this session's rounds

    def refusal(self, planned: Planned, others: Sequence[Planned]) -> Refusal | None:
        """Why a case does not run now together with `others` of its block, or None."""
        if self.is_done(planned):
            return None
        if limit := self.limit(planned):
            return limit
        anchor = self.anchor(planned.block)
        reserved_s = (
            self.cost_s(others) + self.visits_s([anchor] if anchor else []) + self.memory_reserve_s
        )
        cost_s = self.cost_s([planned])
        if reserved_s + cost_s > self.left_s():
            iteration_s, left_s = self.history.iteration_s(planned), self.left_s() - reserved_s
            left = f"{units.seconds(left_s)} left" if left_s >= 1 else "nothing left"
            each, total = units.seconds(iteration_s), units.seconds(cost_s)
            reason = f"({left}): predicted {each} per iteration, {total} in total"
            return Refusal(Cause.BUDGET, f"would exceed --budget {reason}")
        return None

    def limit(self, planned: Planned) -> Refusal | None:
        """Why a case cannot run whatever the budget, as far as known by now, or None."""
        if blocked := schedule.blocked(planned.case, self.history.ended):
            return blocked
        needed_bytes = self.history.needed_bytes(planned)
        if needed_bytes > self.memory_bytes:
            most, needed = units.size(self.memory_bytes), units.size(needed_bytes / schedule.MARGIN)
            spare = f"{100 * (schedule.MARGIN - 1):.0f} % to spare"
            reason = f"would exceed the memory limit ({most}): predicted {needed} and {spare}"
            return Refusal(Cause.MEMORY_LIMIT, reason)
        visit_s, limit_s = self.visit_s(planned), self.request.case_timeout_s
        if limit_s and visit_s > limit_s:
            most, each = units.seconds(limit_s), units.seconds(self.history.iteration_s(planned))
            reason = f"({most}): predicted {each} per iteration, {units.seconds(visit_s)} per round"
            return Refusal(Cause.CASE_TIMEOUT, f"would exceed --case-timeout {reason}")
        return None

    def must_wait(self, extras: Sequence[Planned]) -> bool:
        """Whether the budget is not enough for the wanted rounds of these extras and of the rest.

        The rest are the cases that are not extra, and the extras that have run. The first extras,
        as many as take a share of the budget, need not wait.
        """
        if all(self.is_done(planned) for planned in extras):
            return False
        begun = [p for p in self.plan if p.case.key in self.extras and self.was_timed(p)]
        first_s = sum(self.wanted_of(p) * self.visit_s(p) for p in (*begun, *extras))
        if first_s <= EXTRAS * (self.request.budget_s or 0):
            return False
        rest = [p for p in self.plan if p.case.key not in self.extras and not p.refusal]
        coming = [*(p for p in rest if not self.was_timed(p)), *extras]
        timed = Counter(key for key, _ in self.history.timed)
        repeats_s = sum(
            max(0, self.wanted_of(p) - max(1, timed[p.case.key])) * self.visit_s(p)
            for p in (*self.history.repeatable(), *coming)
        )
        return self.cost_s(coming) + repeats_s + self.memory_reserve_s > self.left_s()

    def wanted_of(self, planned: Planned) -> int:
        """The rounds of a case that come before further extras."""
        most = WANTED_EXTRA if planned.case.key in self.extras else self.wanted
        return min(most, len(self.rounds[planned.block]))

    def is_due(self, planned: Planned, wanted: bool) -> bool:
        """Whether this round repeats a case: it has such a round, and a ratio is imprecise."""
        certain, precision = self.certain.get(planned.block), self.request.precision
        precise = certain is not None and precision is not None and certain.reaches(precision)
        most = self.wanted_of(planned) if wanted else len(self.rounds[planned.block])
        return self.round < most and not precise

    def anchor(self, block: Block) -> Planned | None:
        """What races again with cases not yet timed in this round; None before the first race."""
        timed = [planned for planned in self.blocks[block] if self.was_timed(planned)]
        return min(timed, key=self.history.needed_bytes, default=None)

    def memory_s(self, planned: Planned) -> float:
        """Predicted seconds of measuring the memory of a case."""
        wall_s, overhead_s = self.history.wall_s(planned), self.history.overhead_s(Part.MEMORY)
        return self.history.prepare_s(planned) + schedule.memory_s(wall_s, overhead_s)

    def visits_s(self, cases: Iterable[Planned]) -> float:
        """Predicted seconds of one visit to each case."""
        return sum(map(self.visit_s, cases))

    def visit_s(self, planned: Planned, wall_s: float = 0.0) -> float:
        """Predicted seconds of one visit to a case; `wall_s` of an iteration if measured."""
        settings, overhead_s = self.settings_of(planned), self.history.overhead_s(Part.TIME)
        own_s = stretched_s = wall_s or self.history.wall_s(planned)
        if settings.clock is Clock.CPU and not wall_s:  # as many laps as CPU time asks for
            own_s = self.history.iteration_s(planned)
        stretch = stretched_s / own_s if own_s else 1.0
        visit_s = schedule.visit_s(own_s, settings, overhead_s, stretch)
        compared_s = planned.compared_s if self.compares(planned) else 0.0
        energy_s = schedule.ENERGY_S * settings.energy
        predicted_s = self.history.prepare_s(planned) + compared_s + energy_s + visit_s
        # first pages of gigabytes may take far longer than the iterations
        return max(predicted_s, self.history.visits.get(planned.case.key, 0.0))

    def compares(self, planned: Planned) -> bool:
        """Whether a visit in this round compares a step from a filled state with a prompt's.

        It does in the second round of the sweep, and only if that takes little of the remaining
        budget.
        """
        coming = self.rounds[planned.block][self.round :]
        if not planned.compared_s or coming[:1] != (min(1, self.request.rounds - 1),):
            return False
        stretch = self.history.wall_s(planned) / self.history.iteration_s(planned)
        return stretch * planned.compared_s <= COMPARING * self.left_s()

    def settings_of(self, planned: Planned) -> Settings:
        """The settings of the case: samples of steps are longer where starting takes long."""
        settings = self.request.settings
        if not planned.case.workload.steps:
            return settings
        longer_s = min(PAYS * self.history.overhead_s(Part.TIME), LONGER * settings.sample_s)
        return replace(settings, sample_s=max(settings.sample_s, longer_s))

    def cost_s(self, cases: Sequence[Planned]) -> float:
        """Predicted seconds of visiting those of these cases that are not done in this round."""
        return self.visits_s(planned for planned in cases if not self.is_done(planned))

    def left_s(self) -> float:
        """Seconds left of the budget; infinite without one."""
        if self.request.budget_s is None:
            return math.inf
        return self.request.budget_s - (self.clock() - self.begun)

    def timeout_s(self, planned: Planned, iteration_s: float = 0.0) -> float:
        """Seconds after which the process of a case is killed; `iteration_s` if measured."""
        usual_s, limit_s = self.visit_s(planned, iteration_s), self.request.case_timeout_s
        compiling_s = COMPILING_S if planned.compiles or planned.tunes else 0.0
        longest_s = max(AT_LEAST_S, OVERTIME * usual_s) + compiling_s
        return min(longest_s, math.inf if limit_s is None else limit_s)

    @property
    def room_bytes(self) -> float:
        """Memory that processes may use together."""
        return self.device.shared * self.memory_bytes

    def exceeds_memory(self, cases: Sequence[Planned], idle: int, fragmented: float = 1.0) -> bool:
        """Whether cases that run together need the memory that `idle` processes hold.

        On a GPU these hold only contexts; a case that runs out of memory anyway races again without
        them. On a CPU heaps are `fragmented`.
        """
        needed_bytes = sum(map(self.history.needed_bytes, cases))
        contexts_bytes = idle * self.history.context_bytes
        if self.device.gpus:
            return needed_bytes / schedule.MARGIN + contexts_bytes > self.memory_bytes
        return fragmented * needed_bytes + contexts_bytes > self.room_bytes

    def returns_large_blocks(self, planned: Planned) -> bool:
        """Whether a process returns large freed tensors to the host, since memory is short."""
        heap_bytes = schedule.FRAGMENTED * self.history.needed_bytes(planned)
        return not self.device.gpus and heap_bytes > self.memory_bytes

    def sweep_round(self, planned: Planned) -> int:
        """The number of this round in the whole sweep."""
        return self.rounds[planned.block][self.round]

    def has_first(self, planned: Planned) -> bool:
        """Whether the first round of the case in the whole sweep is in this session's share."""
        return self.rounds[planned.block][0] == 0

    def lacks_memory(self, planned: Planned) -> bool:
        """Whether this session has to measure the memory of the case."""
        return self.has_first(planned) and planned.case.key not in self.history.memory_measured

    def was_timed(self, planned: Planned) -> bool:
        """Whether this round timed the case."""
        return (planned.case.key, self.sweep_round(planned)) in self.history.timed

    def is_done(self, planned: Planned) -> bool:
        """Whether an earlier session timed this round of the case."""
        return (planned.case.key, Part.TIME, self.sweep_round(planned)) in self.finished
