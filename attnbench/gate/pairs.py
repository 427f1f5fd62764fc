"""A case of a check as a race: head against base, and base against base as the noise floor."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from attnbench.metrics import RACED, TIME
from attnbench.run.pool import Pool
from attnbench.run.process import Answer
from attnbench.run.race import Entry, Round, Turns

BASE, HEAD, AGAIN = "base", "head", "again"  # `again` is base a second time
LEAST_TIMEOUT_S = 60.0
PATIENCE = 50.0  # times the expected time of a visit
START_S, WARM = 0.15, 6  # start of a process, and iterations before its first sample
WARM_UP = MappingProxyType({"warmup_s": 0.05, "faulting_s": 0.25})

Laps = Mapping[str, tuple[float, ...]]  # by side, two samples a round
Visit = Mapping[str, Laps]  # by metric: times are seconds of one iteration


class Failed(Exception):
    """One side did not run: `side`, `outcome`, `cause` and `reason`."""

    def __init__(self, side: str, answer: Answer) -> None:
        self.side = side
        self.outcome, self.reason = answer["outcome"], answer.get("reason", "")
        self.cause = answer.get("cause")
        super().__init__(f"{self.outcome} on {side}: {self.reason}")


@dataclass(frozen=True, kw_only=True)
class TreeRace:
    """What each side builds, and how a sample of it is taken."""

    builds: Mapping[str, Mapping[str, Any]]  # side -> mechanism, form, options, workload, …
    rounds: int = 2
    iterations: int = 1  # per sample; a round has two samples of each side
    iteration_s: float = 0.0  # expected

    @property
    def timeout_s(self) -> float:
        """Seconds after which one is killed."""
        return max(LEAST_TIMEOUT_S, PATIENCE * self.cost_s)

    @property
    def cost_s(self) -> float:
        """Expected seconds of one visit."""
        iterations = 2 * self.rounds * self.iterations + WARM
        return len(self.builds) * (START_S + iterations * self.iteration_s)

    def run(self, processes: Round) -> Visit:
        """What every side measured. Raises `Failed`."""
        turns = Turns(pairs=self.rounds, iterations=self.iterations)
        entries = processes.race(
            {name: {**WARM_UP, **asked} for name, asked in self.builds.items()},
            lambda times: dict.fromkeys(times, turns),
            lambda name, wall_s: self.timeout_s,
        )
        for name, entry in entries.items():
            if entry.failed is not None:
                raise Failed(name, entry.failed)
        found = {key: {name: _numbers(key, e) for name, e in entries.items()} for key in RACED}
        return {key: laps for key, laps in found.items() if all(laps.values())}


def _numbers(key: str, entry: Entry) -> tuple[float, ...]:
    """The samples of a side, or twice the one value of its process; empty without one."""
    if key == TIME:
        return tuple(sample.seconds for sample in entry.laps.values())
    number = entry.finished["values"].get(key, 0.0)
    return (number, number) if number > 0 else ()


def tree_round(server: Pool, trees: Mapping[str, Path], draw: random.Random) -> Round:
    """One visit: a fresh process for the tree of each side."""
    return Round(lambda name: server.process(trees[name]), draw)
