"""The gate tried on known slowdowns: one mechanism against itself with more work in it."""

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from attnbench.errors import CannotRun
from attnbench.gate.cases import Plan, batch_for, rounds_for
from attnbench.gate.pairs import Pair
from attnbench.run.pairs import AGAIN, BASE, START_S, Failed, Laps, TreeRace, of_trees
from attnbench.run.processes import Server
from attnbench.run.workers import OverBudget

SHARES = (0.0, 0.02, 0.05, 0.10, 0.20)


@dataclass(frozen=True)
class Injected:
    """A race of base against itself, and against itself with `shares` of extra work."""

    race: TreeRace
    shares: Mapping[str, float]  # entrant -> share


def prepare(
    server: Server,
    tree: Path,
    asked: Mapping[str, Any],
    shares: Sequence[float],
    plan: Plan,
) -> Injected:
    """Size the batch, and the extra work: a number of small products. Raises `CannotRun`."""
    try:
        with of_trees(server, {BASE: tree}, random.Random(0)) as processes:
            race = TreeRace(builds={BASE: asked}, rounds=4)
            took = min(race.run(processes)[BASE])
            batch = batch_for(asked["workload"], took, plan.iteration_s)
            asked = {**asked, "workload": {**asked["workload"], "batch": batch}}
            race = replace(race, builds={BASE: asked})
            took = median(race.run(processes)[BASE])
            product_s = processes.running[BASE].ask(race.timeout_s, do="calibrate")["seconds"]
    except Failed as failed:
        raise CannotRun(str(failed)) from failed
    named = {f"+{share:.0%}": share for share in shares}
    extras = {name: round(share * took / product_s) for name, share in named.items()}
    builds = {name: {**asked, "extra": extra} for name, extra in extras.items()}
    iterations = max(1, round(plan.iteration_s / took))
    return Injected(
        TreeRace(
            builds={BASE: asked, AGAIN: asked, **builds},
            rounds=rounds_for(plan, 3, iterations * took),
            iterations=iterations,
            iteration_s=took,
        ),
        named,
    )


def visits(
    server: Server, tree: Path, injected: Injected, draw: random.Random, end_s: float
) -> Iterator[Laps]:
    """The laps of one visit after the other while there is time. Raises `CannotRun`."""
    trees = dict.fromkeys(injected.race.builds, tree)
    while time.monotonic() + injected.race.cost_s < end_s:
        try:
            with of_trees(server, trees, draw) as processes:
                yield injected.race.run(processes)
        except OverBudget:
            return
        except Failed as failed:
            raise CannotRun(str(failed)) from failed


def against_base(laps: Sequence[Laps], entrant: str) -> tuple[Pair, ...]:
    """The entrant against base in every visit."""
    return tuple(Pair.of(lap[BASE], lap[entrant]) for lap in laps)


def least_s(plan: Plan, entrants: int) -> float:
    """About the fewest seconds that one check's pairs take, whatever the mechanism."""
    samples_s = 2 * plan.rounds * plan.iteration_s  # longer iterations get fewer rounds
    return (plan.pairs + plan.confirm) * entrants * (START_S + samples_s)
