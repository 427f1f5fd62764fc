"""One visit of fresh processes, one for each entrant, to a list of races, turn about.

In a race every entrant runs the same case. A round is an order drawn at random and its mirror
image (A B B A, or B A A B), so that drift within a round falls on all alike.
"""

import random
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnbench.run.sides import Side, Sides

BASE, HEAD, AGAIN = "base", "head", "again"  # `again`: base against base
LEAST_TIMEOUT_S = 60.0
START_S, WARM = 0.15, 6  # a process's start, and iterations before its first sample
PATIENCE = 50.0  # times the expected time of a question

Laps = Mapping[str, tuple[float, ...]]  # entrant -> seconds of one iteration, two samples a round


@dataclass(frozen=True, kw_only=True)
class Race:
    """A case: what each entrant builds, and how a sample of it is taken."""

    name: str
    builds: Mapping[str, Mapping[str, Any]]  # entrant -> mechanism, form, options, workload, …
    rounds: int = 2
    iterations: int = 1  # of one sample; a round has two of each entrant
    iteration_s: float = 0.0  # expected

    @property
    def timeout_s(self) -> float:
        """Seconds after which a process is given up."""
        return max(LEAST_TIMEOUT_S, PATIENCE * self.iterations * self.iteration_s)

    @property
    def cost_s(self) -> float:
        """Expected seconds of one visit."""
        iterations = 2 * self.rounds * self.iterations + WARM
        return len(self.builds) * (START_S + iterations * self.iteration_s)


class Failed(Exception):
    """An entrant did not run; `entrant`, `outcome` and `reason` say which and why."""

    def __init__(self, entrant: str, answer: Mapping[str, Any]) -> None:
        self.entrant = entrant
        self.outcome, self.reason = answer["outcome"], answer.get("reason", "")
        super().__init__(f"{self.outcome} on {entrant}: {self.reason}")


class Visit:
    """One process for each entrant; a process that died is replaced at the next race."""

    def __init__(self, sides: Sides, trees: Mapping[str, Path], draw: random.Random) -> None:
        self.sides, self.trees, self.draw = sides, trees, draw
        self.running: dict[str, Side] = {}
        self.stack = ExitStack()

    def __enter__(self) -> "Visit":
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def race(self, race: Race) -> Laps:
        """Seconds of one iteration in every sample. Raises `Failed`."""
        entrants = list(race.builds)
        self.draw.shuffle(entrants)
        try:
            for name in entrants:
                self.ask(race, name, do="build", name=race.name, **race.builds[name])
            laps: dict[str, list[float]] = {name: [] for name in race.builds}
            for name in order(entrants, race.rounds, self.draw):
                asked = {"do": "time", "name": race.name, "iterations": race.iterations}
                answer = self.ask(race, name, **asked)
                laps[name].append(answer["seconds"] / race.iterations)
            return {name: tuple(times) for name, times in laps.items()}
        finally:
            for side in self.running.values():
                side.ask(LEAST_TIMEOUT_S, do="clear")

    def ask(self, race: Race, entrant: str, **asked: Any) -> Mapping[str, Any]:
        """The answer of an entrant's process. Raises `Failed`."""
        side = self.running.get(entrant)
        if side is None or side.pipe.closed:
            side = self.stack.enter_context(self.sides.side(self.trees[entrant]))
            self.running[entrant] = side
        answer = side.ask(race.timeout_s, **asked)
        if answer["outcome"] != "ok":
            raise Failed(entrant, answer)
        return answer


def order(entrants: Sequence[str], rounds: int, draw: random.Random) -> list[str]:
    """Who runs when: each round is an order drawn at random and its mirror image."""
    found: list[str] = []
    for _ in range(rounds):
        turn = draw.sample(list(entrants), len(entrants))
        found += turn + turn[::-1]
    return found
