"""What a session knows: its plan, how much of it is done, and what the rest will take."""

import math
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from attnbench import units
from attnbench.devices.finding import find
from attnbench.records import Block, Cause, Clock, Outcome, Part, Planned, Request, Run, Settings
from attnbench.run import schedule
from attnbench.run.history import History, blocks
from attnbench.run.predict import Rates
from attnbench.run.race import run_of
from attnbench.run.schedule import Refusal

OVERTIME = 5.0  # a visit may take this many times its prediction, and at least
AT_LEAST_S = 60.0
COMPILING_S = 300.0  # further seconds for compiling, which depends on more than FLOPs
# Steps are short, but building their modules and states is not: samples last up to `PAYS` times the
# rest of a process's time, so that nine tenths of a visit measure; but rounds are what is
# repeated, so a visit must not become much longer than that of a pass.
PAYS, LONGER = 10.0, 3.0
# Samples and warm-up of the first round take at most these shares of a case's even share of the
# budget, so that long cases are reached
FIRST_SAMPLE, FIRST_WARMUP = 1 / 8, 1 / 32


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
    name: str = ""  # of the shard; it seeds random orders
    over_budget: bool = False  # whether the budget left something out
    waiting: dict[str, Planned] = field(init=False)  # for their first visit, by the case's key
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
        unfinished = (p for p in self.plan if self.lacks_memory(p) or not self.is_done(p))
        self.waiting = {p.case.key: p for p in unfinished if not p.refusal}

    def fitting(self, cases: Iterable[Planned], reserve_s: float) -> list[Planned]:
        """The cheapest of these cases whose first visits leave `reserve_s` of the budget."""
        found, left_s = [], self.left_s() - reserve_s
        for planned in sorted(cases, key=self.cost_s):
            again_s = 0.0 if self.is_done(planned) else self.anchor_s(planned.block)
            cost_s = self.cost_s(planned) + again_s
            if self.limit(planned) is None and cost_s <= left_s:
                found.append(planned)
                left_s -= cost_s
        return found

    def left_out(self, planned: Planned) -> Run:
        """What is stored of a case that cannot run, or still waits at the end: why."""
        if planned.refusal:
            cannot = {"outcome": Outcome.UNSUPPORTED, "reason": planned.refusal}
            return run_of(planned, Part.TIME, 0, cannot)
        refusal = self.limit(planned) or self.beyond_budget(planned)
        skipped = {"outcome": Outcome.SKIPPED, **refusal._asdict()}
        predicted = self.history.prediction(planned)
        return run_of(planned, Part.TIME, 0, skipped, predicted=predicted)

    def beyond_budget(self, planned: Planned) -> Refusal:
        """What is left of the budget, and what a case is predicted to take."""
        left_s, cost_s = self.left_s(), self.cost_s(planned)
        left = f"{units.seconds(left_s)} left" if left_s >= 1 else "nothing left"
        each, total = units.seconds(self.history.iteration_s(planned)), units.seconds(cost_s)
        predicted = f"predicted {each} per iteration, {total} in total"
        unknown = self.history.times.unknown(planned)
        reason = f"({left}): {'its costs are unknown' if unknown else predicted}"
        return Refusal(Cause.BUDGET, f"would exceed --budget {reason}")

    def limit(self, planned: Planned) -> Refusal | None:
        """Why a case cannot run whatever the budget, as far as known by now, or None."""
        if blocked := schedule.blocked(planned.case, self.history.ended):
            return blocked
        needed_bytes = self.history.needed_bytes(planned)
        if needed_bytes > self.memory_bytes and not self.history.peaks.unknown(planned):
            most, needed = units.size(self.memory_bytes), units.size(needed_bytes / schedule.MARGIN)
            spare = f"{100 * (schedule.MARGIN - 1):.0f} % to spare"
            reason = f"would exceed the memory limit ({most}): predicted {needed} and {spare}"
            return Refusal(Cause.MEMORY_LIMIT, reason)
        visit_s, limit_s = self.visit_s(planned), self.request.case_timeout_s
        if limit_s and visit_s > limit_s and not self.history.times.unknown(planned):
            most, each = units.seconds(limit_s), units.seconds(self.history.iteration_s(planned))
            reason = f"({most}): predicted {each} per iteration, {units.seconds(visit_s)} per round"
            return Refusal(Cause.CASE_TIMEOUT, f"would exceed --case-timeout {reason}")
        return None

    def anchor(self, block: Block) -> Planned | None:
        """What races again with cases not yet timed in this round; None before the first race."""
        timed = [planned for planned in self.blocks[block] if self.was_timed(planned)]
        return min(timed, key=self.history.iteration_s, default=None)

    def anchor_s(self, block: Block) -> float:
        """Predicted seconds of what races again with cases not yet timed in this round."""
        anchor = self.anchor(block)
        return self.visit_s(anchor) if anchor else 0.0

    def cost_s(self, planned: Planned) -> float:
        """Predicted seconds of what is not done of a case's first visit: time and memory."""
        visit_s = 0.0 if self.is_done(planned) else self.visit_s(planned)
        return visit_s + (self.memory_s(planned) if self.lacks_memory(planned) else 0.0)

    def memory_s(self, planned: Planned) -> float:
        """Predicted seconds of measuring the memory of a case."""
        wall_s, overhead_s = self.history.wall_s(planned), self.history.overhead_s[Part.MEMORY]
        return self.history.prepare_s(planned) + schedule.memory_s(wall_s, overhead_s)

    def visits_s(self, cases: Iterable[Planned]) -> float:
        """Predicted seconds of one visit to each case."""
        return sum(map(self.visit_s, cases))

    def visit_s(self, planned: Planned, wall_s: float = 0.0) -> float:
        """Predicted seconds of one visit to a case; `wall_s` of an iteration if measured."""
        settings, overhead_s = self.settings_of(planned), self.history.overhead_s[Part.TIME]
        own_s = stretched_s = wall_s or self.history.wall_s(planned)
        if settings.clock is Clock.CPU and not wall_s:  # as many laps as CPU time asks for
            own_s = self.history.iteration_s(planned)
        stretch = stretched_s / own_s if own_s else 1.0
        visit_s = schedule.visit_s(own_s, settings, overhead_s, stretch)
        energy_s = schedule.ENERGY_S * settings.energy
        predicted_s = self.history.prepare_s(planned) + energy_s + visit_s
        # first pages of gigabytes may take far longer than the iterations
        return max(predicted_s, self.history.visits.get(planned.case.key, 0.0))

    def settings_of(self, planned: Planned) -> Settings:
        """The settings of the case: samples of steps are longer where starting takes long."""
        settings, sample_s = self.request.settings, self.request.settings.sample_s
        if planned.case.workload.steps:
            longer_s = min(PAYS * self.history.overhead_s[Part.TIME], LONGER * sample_s)
            settings = replace(settings, sample_s=max(sample_s, longer_s))
        if self.round or self.request.budget_s is None:
            return settings
        share_s = self.request.budget_s / len(self.plan)
        return replace(
            settings,
            sample_s=min(settings.sample_s, FIRST_SAMPLE * share_s),
            warmup_s=min(settings.warmup_s, FIRST_WARMUP * share_s),
        )

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

    def draw(self) -> random.Random:
        """The random generator of this round's order."""
        return random.Random(f"{self.request.settings.seed}-{self.round}{self.name}")
