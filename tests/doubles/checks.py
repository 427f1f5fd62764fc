"""A machine of which only the clock moves: checks of functions whose true changes are known."""

import math
import random
from contextlib import nullcontext
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np

from attnbench.commands.check import measuring
from attnbench.commands.check.cases import AGAIN, BASE, HEAD, CheckedCase, CheckPlan, Counted
from attnbench.commands.check.finding import CheckReport, with_results
from attnbench.commands.check.measuring import Failed, Looks, Runner, TreeRace
from attnbench.errors import OverBudget
from attnbench.records import Selection

OK = Counted(outcome="ok")
VISIT_S = 2.0  # of one pair of processes, on a quiet machine
SAMPLES = 8  # of a process in one pair


class Machine:
    """A server whose clock moves only while cases are timed, `slowdown` times as long as alone."""

    def __init__(self, slowdown, budget_s):
        self.now = 0.0
        self.end_s = budget_s
        self.slowdown = slowdown
        self.layout = 0  # of memory, of the processes that are timed

    @property
    def left_s(self):
        return self.end_s - self.now

    def of_layout(self, number):
        self.layout = number
        return self

    def wait(self):
        pass


@dataclass(frozen=True, kw_only=True)
class Simulated(TreeRace):
    """A visit to a case takes two seconds; head takes `ratio` times as long as base.

    A `ratio` of 0 is a head that fails.
    """

    machine: Machine
    ratio: float
    cost_s = VISIT_S

    def run(self, processes):
        self.machine.now += self.cost_s * self.machine.slowdown
        if self.machine.left_s < 0:
            self.machine.now = self.machine.end_s
            raise OverBudget
        if not self.ratio:
            raise Failed(HEAD, Counted(outcome="failed", reason="it broke"))
        return self.laps()

    def laps(self):
        """The same seconds in every pair."""
        laps = {BASE: (1.0,) * 4, AGAIN: (1.0,) * 4}
        return {**laps, HEAD: tuple(self.ratio * x for x in (1.0, 1.0, 1.0, 1.001))}


@dataclass(frozen=True, kw_only=True)
class Noisy(Simulated):
    """One whose processes differ by `placement`, and their samples by `jitter`, with stalls.

    In each memory layout head takes longer by one of `favours`, a log ratio, in all pairs.
    """

    draw: np.random.Generator
    placement: float
    jitter: float
    favours: tuple[float, ...] = (0.0,) * 4

    def laps(self):
        """Log ratios of processes are normal; samples have heavy tails, and 1 % of them stall."""
        draw = self.draw
        placed = draw.normal(0, self.placement, (3, 1))
        noise = self.jitter * draw.standard_t(3, (3, SAMPLES))
        stalls = (draw.random((3, SAMPLES)) < 0.01) * draw.exponential(0.5, (3, SAMPLES))
        ratio = self.ratio * np.exp(self.favours[self.machine.layout])
        base, head, again = np.exp(placed + noise + stalls)
        return {BASE: tuple(base), HEAD: tuple(ratio * head), AGAIN: tuple(again)}


def simulated(budget_s, slowdown, *ratios, race=Simulated, plan=None, **about):
    """A check of functions with these ratios, each raced by a `race` with `about`.

    Returns the looks and their report.
    """
    machine = Machine(slowdown, budget_s)
    cases = [CheckedCase(selection=Selection(name=f"m:f{n}")) for n in range(len(ratios))]
    for case in cases:
        case.counted |= dict.fromkeys((BASE, HEAD), OK)
    with (
        patch.object(measuring, "Round", lambda *_: nullcontext()),
        patch.object(measuring.time, "monotonic", lambda: machine.now),
        patch.object(measuring, "count", lambda *_: None),
    ):
        chosen = plan or CheckPlan(budget_s=budget_s)
        looks = Looks(chosen, Runner(server=machine), {BASE: None, HEAD: None})
        looks.draw = random.Random(0)
        for case, ratio in zip(cases, ratios, strict=True):
            own = {
                name: value[case.name] if isinstance(value, dict) else value
                for name, value in about.items()
            }
            looks.races[case] = race(builds={}, machine=machine, ratio=ratio, **own)
        looks.take(cases)
    assert machine.now <= budget_s
    machine.end_s = math.inf  # a report is made when the budget no longer counts
    report = with_results(CheckReport(base="a", head="b"), looks)
    return looks, report
