"""Warm-up and samples, timed by a stopwatch that tests can replace."""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import linear_regression, median
from typing import TypeVar

from attnbench.devices.protocol import PHASES, Iterate, Lap, Stopwatch
from attnbench.records import AWAY, Clock, Sample

Grown = TypeVar("Grown", int, float)

SLOPE_SAMPLES = 10  # warm-up ends when, over this many iterations,
SLOPE = 0.02  # times drift by less than 2 %

# The kernel maps a page of 4 KiB and clears it. Measured: the first iteration of a case took 86 ms
# longer than later ones, with 65,790 faults.
FAULT_S = 1.2e-6
COLD = 0.005  # an iteration that spends this share of its time on page faults is not warm
LEAST_SHARE = 0.1  # of its time that an iteration is taken to compute while its pages are mapped
REHEARSAL_S = 0.1  # at most, of the untimed iterations before a sample, while pages fault
MOST_COLD = 6  # iterations; some mechanisms still fault in each one after that


class HostStopwatch:
    """Wall time and the process's CPU time; `clock` and `cpu_clock` give seconds.

    `counts` is the clock of the samples and their phases.
    """

    calibrating = hides_launches = False  # the host has no queue that could hide anything

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        cpu_clock: Callable[[], float] = time.process_time,
        counts: Clock = Clock.WALL,
    ) -> None:
        self.clock, self.cpu_clock, self.counts = clock, cpu_clock, counts

    def reset(self, iterations: int, hide: bool = True) -> None:
        self.laps: defaultdict[str, float] = defaultdict(float)
        self.wall_s = self.cpu_s = 0.0

    def start(self) -> None:
        self.cpu_mark = self.cpu_clock()
        self.mark = self.clock()

    def lap(self, phase: str) -> None:
        now = self.clock()
        cpu_now = self.cpu_clock()
        wall_s = now - self.mark
        cpu_s = cpu_now - self.cpu_mark
        self.laps[phase] += cpu_s if self.counts == Clock.CPU else wall_s
        self.wall_s += wall_s
        self.cpu_s += cpu_s
        self.mark = now
        self.cpu_mark = cpu_now

    def sample(self, iterations: int) -> Sample:
        forward, backward, step = (self.laps.get(phase, 0.0) for phase in PHASES)
        taken = Sample(iterations, self.wall_s, self.cpu_s, None, forward, backward, step)
        return taken._replace(clock=self.counts)


def warm_up(
    iterate: Iterate,
    clear: Callable[[], None],
    watch: Stopwatch,
    first: Sample,
    limit_s: float,
    faulted: Callable[[], int] = lambda: 0,
    faulting_s: float = 0.0,
    map_ahead: Callable[[], None] = lambda: None,
) -> list[Sample]:
    """A sample of each iteration until times are steady or `limit_s` is spent, and pages mapped.

    One iteration, the `first`, has run before. `clear` runs before each, untimed. A stopwatch that
    calibrates extends the warm-up until calibration ends. `faulted` gives the page faults since its
    last call; because of them alone the warm-up lasts `MOST_COLD` iterations or `faulting_s` at
    most. Where one takes all of `limit_s`, another would cost as much as a sample: `map_ahead` maps
    pages instead, and the meter of the next sample tells whether they were enough.
    """
    warm = [first]
    cold = is_cold(faulted(), first)
    if cold and faulting_s and spent_s(warm) >= limit_s:
        map_ahead()
        cold = False
    while (
        watch.calibrating
        or (spent_s(warm) < limit_s and not is_steady([s.seconds for s in warm]))
        or (cold and len(warm) < MOST_COLD and sum(s.seconds for s in warm) < faulting_s)
    ):
        warm.append(sample(iterate, clear, watch, 1))
        cold = is_cold(faulted(), warm[-1])
    return warm


def without_faults_s(taken: Sample, kernel_s: float) -> float:
    """Seconds of one iteration, roughly, without the `kernel_s` in which its pages were mapped.

    Mapping a page takes 1 µs, or 16 where the host of a virtual machine maps it too, so that the
    first iteration of a long case can take eight times as long as later ones.
    """
    return max(LEAST_SHARE * taken.seconds, taken.seconds - kernel_s / taken.iterations)


def is_steady(times: Sequence[float]) -> bool:
    """Whether the last of these times do not drift."""
    if len(times) < SLOPE_SAMPLES:
        return False
    tail = times[-SLOPE_SAMPLES:]
    slope = linear_regression(range(SLOPE_SAMPLES), tail).slope
    return abs(slope) * SLOPE_SAMPLES < SLOPE * median(tail)


def is_cold(faults: int, taken: Sample) -> bool:
    """Whether these page faults took a significant part of the sample."""
    return FAULT_S * faults > COLD * taken.iterations * taken.seconds


def is_away(samples: Sequence[Sample], waited_s: float) -> bool:
    """Whether the process slept, or let others compute, for a significant part of these samples.

    `waited_s` is how long its threads waited for a core meanwhile; NaN where that is unknown.
    """
    wall_s = sum(s.wall_s for s in samples)
    cpu_s = sum(s.cpu_s for s in samples)
    return samples[0].clock == Clock.CPU and wall_s - cpu_s - waited_s > AWAY * wall_s


def spent_s(samples: Sequence[Sample]) -> float:
    """Seconds that samples took: wall time, or device time where the device has a clock."""
    return sum(s.wall_s if s.device_s is None else s.device_s for s in samples)


def increments(count: Callable[[], Grown]) -> Callable[[], Grown]:
    """A function that returns by how much a count has grown since its last call, or since now."""
    last = count()

    def grown() -> Grown:
        nonlocal last
        before = last
        last = count()
        return last - before

    return grown


def repeated(work: Callable[[], object], count: int = 1) -> Iterate:
    """An iteration of `count` calls, timed as one forward pass."""

    def iterate(lap: Lap) -> None:
        for _ in range(count):
            work()
        lap("forward")

    return iterate


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
