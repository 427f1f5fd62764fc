"""The timing harness against a clock that moves only when work is done."""

import itertools

import pytest

from attnbench.devices.timing import (
    FAULT_S,
    HostStopwatch,
    increments,
    is_away,
    is_steady,
    sample,
    warm_up,
    without_faults_s,
)
from attnbench.records import Clock, Sample


class World:
    """A clock, and work that moves it; clearing gradients takes extra time."""

    def __init__(self, durations):
        self.now = 100.0
        self.durations = durations
        self.iterations = self.clears = 0

    def clock(self):
        return self.now

    def iterate(self, lap):
        took = next(self.durations)
        self.iterations += 1
        for phase, share in (("forward", 0.25), ("backward", 0.5), ("step", 0.25)):
            self.now += share * took
            lap(phase)

    def clear(self):
        self.clears += 1
        self.now += 1000.0

    def watch(self, counts=Clock.WALL):
        return HostStopwatch(self.clock, lambda: 2 * self.now, counts)


def took(seconds):
    """A sample of one iteration."""
    return Sample(1, seconds, seconds, None, seconds, 0.0, 0.0)


@pytest.mark.parametrize(("counts", "each_s"), [(Clock.WALL, 0.4), (Clock.CPU, 0.8)])
def test_a_sample_holds_its_phases_by_the_clock_that_counts_and_nothing_between(counts, each_s):
    world = World(itertools.repeat(0.4))
    taken = sample(world.iterate, world.clear, world.watch(counts), 3)
    assert (world.clears, taken.iterations, taken.device_s) == (3, 3, None)
    assert (taken.wall_s, taken.cpu_s) == pytest.approx((1.2, 2.4))
    phases = [taken.forward_s, taken.backward_s, taken.step_s]
    assert phases == pytest.approx([0.75 * each_s, 1.5 * each_s, 0.75 * each_s])
    assert taken.seconds == pytest.approx(each_s)


def test_a_warm_up_ends_when_iterations_no_longer_drift():
    falling = [1.0 - 0.05 * i for i in range(10)]
    assert not is_steady(falling)
    assert not is_steady([1.0] * 9)
    assert is_steady(falling + [0.5] * 10)


def test_a_warm_up_times_each_iteration_by_itself():
    world = World(itertools.chain([2.0, 1.5, 1.2], itertools.repeat(1.0)))
    warm = warm_up(world.iterate, world.clear, world.watch(), took(9.0), 1e9)
    times = [each.seconds for each in warm]
    assert times[:4] == pytest.approx([9.0, 2.0, 1.5, 1.2])
    assert times[-5:] == pytest.approx([1.0] * 5)
    assert world.iterations == world.clears == len(warm) - 1


# what an iteration of 0.1 s spends on page faults: 0.5 % of it
ENOUGH = round(0.005 * 0.1 / FAULT_S)


@pytest.mark.parametrize(
    ("faults", "faulting_s", "iterations"),
    [
        ([9 * ENOUGH, ENOUGH - 9], 3.0, 2),
        ([65_790, 10_240, 0], 3.0, 3),
        ([465_701, 40_978, 139_264, 1], 3.0, 4),
        ([ENOUGH - 9, ENOUGH - 9], 3.0, 2),
        ([9 * ENOUGH] * 99, 3.0, 6),
        ([9 * ENOUGH] * 99, 0.0, 2),
        ([9 * ENOUGH] * 99, 0.25, 3),
    ],
)
def test_a_case_is_warm_when_pages_no_longer_fault(faults, faulting_s, iterations):
    world = World(itertools.repeat(0.1))
    watch, counts = world.watch(), iter(faults)
    first = sample(world.iterate, world.clear, watch, 1)
    limits = 0.15, lambda: next(counts), faulting_s
    warm = warm_up(world.iterate, world.clear, watch, first, *limits)
    assert len(warm) == world.iterations == iterations


@pytest.mark.parametrize(
    ("faults", "faulting_s", "mapped"),
    [(5_000, 3.0, 1), (99_999, 3.0, 1), (9, 3.0, 0), (9, 0.0, 0)],
)
def test_a_long_case_maps_pages_ahead_in_place_of_further_iterations(faults, faulting_s, mapped):
    world, calls = World(itertools.repeat(0.05)), []
    limits = 0.2, lambda: faults, faulting_s, lambda: calls.append(1)
    warm = warm_up(world.iterate, world.clear, world.watch(), took(0.3), *limits)
    assert (len(warm), len(calls)) == (1, mapped)


@pytest.mark.parametrize(("kernel_s", "expected"), [(0.0, 3.0), (2.5, 0.5), (3.5, 0.3)])
def test_an_iteration_without_its_page_faults_takes_less(kernel_s, expected):
    assert without_faults_s(took(3.0), kernel_s) == pytest.approx(expected)


def test_a_count_is_told_by_its_growth():
    grown = increments(iter((5, 5, 9, 30)).__next__)
    assert [grown(), grown(), grown()] == [0, 4, 21]


@pytest.mark.parametrize(
    ("cpu_s", "waited_s", "away"),
    [(1.0, 0.0, False), (0.25, 0.74, False), (0.9, 0.0, True), (0.0, 0.5, True), (3.8, 0.0, False)],
)
def test_who_sleeps_is_told_from_who_waits_for_a_core(cpu_s, waited_s, away):
    taken = Sample(1, 1.0, cpu_s, None, cpu_s, 0.0, 0.0, clock=Clock.CPU)
    assert is_away([taken] * 3, 3 * waited_s) == away
    assert not is_away([taken._replace(clock=Clock.WALL)], 0.0)
    assert not is_away([taken], float("nan"))
