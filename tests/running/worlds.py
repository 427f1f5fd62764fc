"""Worlds of which all is known, and sweeps that measure them on a machine that runs nothing.

A world has true times and peaks of every case, which a sweep sees through noise and layouts of
memory, and as far as its budget goes. Some series run out of memory, fail at one length, are
suspect, or have no declared cost.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from attnbench.records import Level, Mode, Outcome, Planned, Workload
from attnbench.records.card import CardFacts, Causality, Family
from attnbench.records.case import Case
from attnbench.records.storage import schema
from attnbench.records.storage.journal import contents
from attnbench.records.storage.schema import End, EndReason, Head, Start
from tests.doubles.machine import Machine
from tests.running.sessions import REQUEST, sweep
from tests.sweeps import environment

LENGTHS = tuple(2**power for power in range(7, 17))
MODES = (Mode.INFERENCE, Mode.TRAINING)
TOKENS = 8192
MEMORY_BYTES = 8 << 30
SUSPECT = "its output does not depend on its input"
LAP = 0.02  # standard deviation of a lap, of log seconds
LAYOUT = 0.025  # of a process in one server, so that a ratio varies by 3.5 %


@dataclass(frozen=True, kw_only=True)
class Nature:
    """A series as it is: log-linear in N, with a kink where another form takes over.

    One sequence of N tokens takes `base_s` · (N / 1,024) ^ `exponent` seconds in inference, from
    `kink` on times `step`, and `training` times as long in training. It allocates `base_bytes` ·
    (N / 1,024) ^ `growth`. It runs out of memory from `ends` on, fails at the length `broken`, and
    is `suspect` wherever it is looked at. A first guess of its costs errs by the factor `guess`.
    """

    name: str
    base_s: float
    exponent: float
    training: float
    base_bytes: float
    growth: float
    guess: float
    kink: float = math.inf
    step: float = 1.0
    ends: float = math.inf
    broken: int = 0
    suspect: bool = False
    declared: bool = True

    def seconds(self, mode, seq_len):
        """Seconds of an iteration of a batch of `TOKENS` tokens, or of one longer sequence."""
        one_s = self.base_s * (seq_len / 1024) ** self.exponent
        if seq_len >= self.kink:
            one_s *= self.step
        if mode is Mode.TRAINING:
            one_s *= self.training
        return one_s * max(1, TOKENS // seq_len)

    def peak_bytes(self, mode, seq_len):
        """Allocated bytes at the peak, exactly."""
        one = self.base_bytes * (seq_len / 1024) ** self.growth
        if mode is Mode.TRAINING:
            one *= 3
        return int(one * max(1, TOKENS // seq_len))

    def fate(self, seq_len):
        """How a case of this length ends."""
        if seq_len >= self.ends:
            return Outcome.OOM
        return Outcome.FAILED if seq_len == self.broken else Outcome.OK


@dataclass(frozen=True, kw_only=True)
class World:
    """Series with a request of a sweep over them."""

    natures: tuple[Nature, ...]
    lengths: tuple[int, ...]
    modes: tuple[Mode, ...]
    budget_s: float
    against: str | None
    seed: int

    def nature(self, series):
        """The series of this name."""
        (nature,) = (nature for nature in self.natures if f"{nature.name}:eager" == series)
        return nature

    @property
    def request(self):
        """What the command line would ask for."""
        models = tuple(nature.name for nature in self.natures)
        return replace(
            REQUEST,
            models=models,
            lengths=self.lengths,
            modes=self.modes,
            tokens=TOKENS,
            budget_s=self.budget_s,
            rounds=12,
            precision=0.02,
            settings=replace(REQUEST.settings, sample_s=0.5, warmup_s=0.2),
        )

    @property
    def plan(self):
        """All cases; FLOPs are such that a first guess errs by the factor of each series."""
        return tuple(
            self.planned(nature, mode, seq_len)
            for mode in self.modes
            for nature in self.natures
            for seq_len in self.lengths
        )

    def planned(self, nature, mode, seq_len):
        """One case of the plan."""
        batch = max(1, TOKENS // seq_len)
        workload = Workload(batch=batch, seq_len=seq_len, level=Level.ATTENTION, mode=mode)
        flops = int(nature.guess * nature.seconds(Mode.INFERENCE, seq_len) * 1e9)
        return Planned(
            case=Case(mechanism=nature.name, form="eager", workload=workload),
            parameters=1,
            projection_flops=flops if nature.declared else 1,
            core_flops=0,
            shell_flops=0,
            predicted_bytes=nature.peak_bytes(mode, seq_len) if nature.declared else 1,
            declared=nature.declared,
        )


def drawn(seed):
    """A world with one to eight series, and a budget of 20 seconds to 20 minutes."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 9))
    alike = rng.random() < 0.3  # many of equal cost, where ties are the truth
    natures = tuple(nature(rng, f"m{i}", alike) for i in range(count))
    if count > 1 and rng.random() < 0.2:
        natures = (*natures[:-1], replace(natures[0], name=natures[-1].name))
    names = [f"{nature.name}:eager" for nature in natures]
    lengths = sorted(rng.choice(LENGTHS, size=int(rng.integers(1, 11)), replace=False))
    modes = MODES if rng.random() < 0.6 else (MODES[int(rng.integers(2))],)
    return World(
        natures=natures,
        lengths=tuple(map(int, lengths)),
        modes=modes,
        budget_s=float(np.exp(rng.uniform(np.log(20), np.log(1200)))),
        against=str(rng.choice(names)) if rng.random() < 0.3 else None,
        seed=seed,
    )


def nature(rng, name, alike):
    """A series of this name; where all are `alike`, their times differ by some per cent."""
    spread = 0.03 if alike else 0.8
    exponent = 1.0 if alike else float(rng.choice([1.0, 1.0, 1.2, 1.5, 2.0]))
    return Nature(
        name=name,
        base_s=0.02 * float(np.exp(spread * rng.standard_normal())),
        exponent=exponent,
        training=float(rng.uniform(2.5, 4.0)) if not alike else 3.0,
        base_bytes=4e6 * float(np.exp(0.7 * rng.standard_normal())),
        growth=float(rng.choice([1.0, 1.0, 2.0])),
        guess=float(np.exp(0.4 * rng.standard_normal())),
        kink=float(rng.choice(LENGTHS)) if rng.random() < 0.3 else math.inf,
        step=float(rng.uniform(0.5, 1.5)),
        ends=float(rng.choice(LENGTHS[3:])) if rng.random() < 0.15 else math.inf,
        broken=int(rng.choice(LENGTHS)) if rng.random() < 0.1 else 0,
        suspect=bool(rng.random() < 0.1),
        declared=bool(rng.random() < 0.8),
    )


class Nowhere(Machine):
    """The machine of a world: true seconds, times what a lap and a layout of memory add."""

    def __init__(self, world):
        super().__init__(overhead_s=0.3)
        self.world = world
        self.rng = np.random.default_rng([world.seed, 1])
        self.by_name = {nature.name: nature for nature in world.natures}
        self.layouts = {}
        self.round = 0
        self.seconds = self.noisy
        self.fate = self.ending
        self.peak_bytes = lambda case: self.by_name[case.mechanism].peak_bytes(
            case.workload.mode, case.workload.seq_len
        )

    def start(self, series, *, round_=0, measures_memory=False):
        if not measures_memory:
            self.round = round_
            # as `Pool.of_round` keeps servers; the next one of another round has another layout
            kept = {0, round_, round_ + 1}
            self.layouts = {key: log for key, log in self.layouts.items() if key[1] in kept}
        return super().start(series, round_=round_, measures_memory=measures_memory)

    def noisy(self, case):
        layout = (case.mechanism, self.round)
        if layout not in self.layouts:
            self.layouts[layout] = LAYOUT * self.rng.standard_normal()
        noise = self.layouts[layout] + LAP * self.rng.standard_normal()
        workload = case.workload
        return self.by_name[case.mechanism].seconds(workload.mode, workload.seq_len) * math.exp(
            noise
        )

    def ending(self, case, do):
        nature = self.by_name[case.mechanism]
        outcome = nature.fate(case.workload.seq_len)
        if do == "build" and outcome is not Outcome.OK:
            cause = {"cause": "oom"} if outcome is Outcome.OOM else {}
            return {"outcome": str(outcome), "reason": f"it {outcome}", **cause}
        if do == "finish" and nature.suspect:
            values = {"warmup_s": self.noisy(case), "compile_s": 0.0}
            notes = {"examined": "yes", "suspect": SUSPECT}
            return {"outcome": "ok", "values": values, "notes": notes, "needs_new_process": False}
        return None


def measured(world, observe_block=lambda block, series, runs: None):
    """The sweep of a world, through the real order and loop, and read from its real journal.

    `observe_block` sees what has been timed, as in `running.sweep.make_visits`.
    """
    machine = Nowhere(world)
    request = world.request
    watch = {"observe_block": observe_block}
    agenda = sweep(machine, world.plan, request, MEMORY_BYTES, watch=watch)
    ended = EndReason.BUDGET if agenda.over_budget else EndReason.FINISHED
    records = (
        Head(name="world", attnbench="0", request=request),
        Start(request, environment()),
        *map(card, world.natures),
        *world.plan,
        *machine.stored,
        End(outcome=ended),
    )
    at = "2026-01-01T00:00:00.000+00:00"
    data = b"".join(schema.seal(schema.to_entry(record, at)) for record in records)
    return contents(data, "a world").sweep()


def card(nature):
    """The card of a series."""
    return CardFacts(
        mechanism=nature.name,
        title=nature.name,
        authors="",
        year=2026,
        source="",
        family=Family.FULL,
        causality=Causality.OPTIONAL,
        complexity="O(N)",
        forms=("eager",),
        options={},
    )
