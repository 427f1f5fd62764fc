"""Warm-up and samples, timed by a stopwatch that tests can replace."""

import time
from collections.abc import Callable, Sequence
from statistics import linear_regression, median
from typing import Any

from attnbench.device import Stopwatch
from attnbench.records import Sample

Lap = Callable[[str], None]
Iterate = Callable[[Lap], Any]

SLOPE_SAMPLES = 10  # warm-up ends when, over this many iterations,
SLOPE = 0.02  # times drift by less than 2 %


class HostStopwatch:
    """Wall time and the process's CPU time; `clock` and `cpu_clock` give seconds."""

    learning = hiding = False  # the host has no queue that could hide anything

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        self.clock, self.cpu_clock = clock, cpu_clock

    def reset(self, iterations: int, hide: bool = True) -> None:
        self.laps = {"forward": 0.0, "backward": 0.0, "step": 0.0}
        self.cpu_s = 0.0

    def start(self) -> None:
        self.cpu_mark = self.cpu_clock()
        self.mark = self.clock()

    def lap(self, phase: str) -> None:
        now, cpu_now = self.clock(), self.cpu_clock()
        self.laps[phase] += now - self.mark
        self.cpu_s += cpu_now - self.cpu_mark
        self.mark, self.cpu_mark = now, cpu_now

    def sample(self, iterations: int) -> Sample:
        forward, backward, step = self.laps.values()
        wall = forward + backward + step
        return Sample(iterations, wall, self.cpu_s, None, forward, backward, step)


def warm_up(
    iterate: Iterate, clear: Callable[[], None], watch: Stopwatch, first_s: float, limit_s: float
) -> list[float]:
    """Seconds of each iteration until times are steady or `limit_s` is spent.

    One iteration has run before and took `first_s`. `clear` runs before each, untimed. A stopwatch
    that learns goes on until it has learnt.
    """
    warm = [first_s]
    while watch.learning or still_warming(warm, limit_s):
        warm.append(sample(iterate, clear, watch, 1).seconds)
    return warm


def still_warming(times: Sequence[float], limit_s: float) -> bool:
    """Whether another warm-up iteration is due after iterations of these times."""
    if sum(times) >= limit_s:
        return False
    if len(times) < SLOPE_SAMPLES:
        return True
    tail = times[-SLOPE_SAMPLES:]
    slope = linear_regression(range(SLOPE_SAMPLES), tail).slope
    return abs(slope) * SLOPE_SAMPLES >= SLOPE * median(tail)


def sample(
    iterate: Iterate,
    clear: Callable[[], None],
    watch: Stopwatch,
    iterations: int,
    hide: bool = True,
) -> Sample:
    """One sample of that many iterations; `hide` launches if the stopwatch can."""
    watch.reset(iterations, hide)
    for _ in range(iterations):
        clear()
        watch.start()
        iterate(watch.lap)
    return watch.sample(iterations)
