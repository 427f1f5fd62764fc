"""The timing harness against a clock that moves only when work is done."""

import itertools

import pytest

from attnbench.measure.timing import HostStopwatch, sample, still_warming, warm_up


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

    def watch(self):
        return HostStopwatch(self.clock, lambda: 2 * self.now)


def test_a_sample_holds_its_phases_and_nothing_between_iterations():
    world = World(itertools.repeat(0.4))
    taken = sample(world.iterate, world.clear, world.watch(), 3)
    assert world.clears == 3
    assert taken.iterations == 3
    assert taken.wall_s == pytest.approx(1.2)
    assert taken.cpu_s == pytest.approx(2.4)
    assert (taken.forward_s, taken.backward_s, taken.step_s) == pytest.approx((0.3, 0.6, 0.3))
    assert taken.device_s is None
    assert taken.seconds == pytest.approx(0.4)


def test_a_warm_up_ends_when_iterations_no_longer_drift():
    falling = [1.0 - 0.05 * i for i in range(10)]
    assert still_warming(falling, 1e9)
    assert still_warming([1.0] * 9, 1e9)
    assert not still_warming(falling + [0.5] * 10, 1e9)


def test_a_warm_up_ends_at_its_cap_and_one_iteration_may_be_all_of_it():
    world = World(itertools.repeat(50.0))
    assert warm_up(world.iterate, world.clear, world.watch(), 55.0, 0.25) == [55.0]
    assert world.iterations == 0


def test_a_warm_up_times_each_iteration_by_itself():
    world = World(itertools.chain([2.0, 1.5, 1.2], itertools.repeat(1.0)))
    warm = warm_up(world.iterate, world.clear, world.watch(), 9.0, 1e9)
    assert warm[:4] == pytest.approx([9.0, 2.0, 1.5, 1.2])
    assert warm[-5:] == pytest.approx([1.0] * 5)
    assert world.iterations == world.clears == len(warm) - 1
