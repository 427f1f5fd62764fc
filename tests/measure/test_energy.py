"""Energy of an iteration, from a counter that moves in steps of a clock that only tests move."""

from functools import partial
from types import SimpleNamespace

import pytest

from attnbench.devices.protocol import Unavailable
from attnbench.measure import further
from attnbench.measure.energy import IDLE_S, WINDOW_S, per_iteration

IDLE_W, BUSY_W = 60.0, 300.0


class Counted:
    """A device that consumes what it does, and a counter that says so `step_s` apart."""

    def __init__(self, step_s, busy_before=True):
        self.now = self.consumed = 0.0
        self.step_s, self.shown = step_s, 0.0
        self.look_s = 0.001
        if busy_before:
            self.spend(0.73 * step_s, BUSY_W)  # of another process, which a step still shows

    def spend(self, seconds, watts):
        for _ in range(round(seconds / 1e-4)):
            self.now += 1e-4
            self.consumed += 1e-4 * watts
            if self.now % self.step_s < 1e-4:
                self.shown = self.consumed

    def joules(self):
        self.spend(self.look_s, IDLE_W)
        return self.shown

    def measured(self, iteration_s=0.01):
        def run(seconds):
            self.spend(seconds, BUSY_W)
            return round(seconds / iteration_s)

        return per_iteration(self.joules, run, lambda: self.now, lambda s: self.spend(s, IDLE_W))


@pytest.mark.parametrize("step_s", [0.02, 0.1])
def test_an_iteration_costs_its_time_at_the_power_of_its_device(step_s):
    found = Counted(step_s).measured()
    assert found["energy_j"] == pytest.approx(0.01 * BUSY_W, rel=0.03)
    assert found["net_energy_j"] == pytest.approx(0.01 * (BUSY_W - IDLE_W), rel=0.03)
    assert found["power_w"] == pytest.approx(BUSY_W, rel=0.03)
    assert found["idle_w"] == pytest.approx(IDLE_W, rel=0.03)


def test_what_is_consumed_until_the_last_step_is_no_work():
    """Of a counter that moves four times a second it would be 1 % or more."""
    found = Counted(0.29, busy_before=False).measured()
    assert found["energy_j"] == pytest.approx(0.01 * BUSY_W, rel=0.005)


def test_a_counter_that_stands_still_is_no_counter():
    still = Counted(1e9, busy_before=False)
    with pytest.raises(Unavailable, match=r"did not change for 0\.3 s"):
        still.measured()
    assert still.now < 2 * (IDLE_S + WINDOW_S)


@pytest.fixture
def built(monkeypatch):
    """What a worker has built on a device whose clock moves by 10 ms with each iteration."""
    counted = Counted(0.05)
    clock = SimpleNamespace(perf_counter=lambda: counted.now)
    monkeypatch.setattr(further, "time", clock)
    how = {"clock": clock.perf_counter, "sleep": lambda s: counted.spend(s, IDLE_W)}
    monkeypatch.setattr(further, "per_iteration", partial(per_iteration, **how))
    return SimpleNamespace(
        device=SimpleNamespace(joules=counted.joules, synchronise=lambda: None, captures=False),
        iterate=lambda lap: counted.spend(0.01, BUSY_W),
        clear=lambda: None,
        iteration_s=0.002,  # of the device; the host takes longer
        energy=True,
        laps=[],
        counted=counted,
    )


def test_a_window_has_as_many_iterations_as_it_has_time_for(built):
    found, notes = further.further(built)
    assert not notes
    assert found["energy_j"] == pytest.approx(0.01 * BUSY_W, rel=0.03)
    assert built.counted.now < WINDOW_S + IDLE_S + 1.0


def test_where_nothing_counts_the_reason_is_given(built):
    def unreadable():
        raise Unavailable("it cannot be read: Permission denied")

    built.device.joules = unreadable
    assert further.further(built) == ({}, {"energy": "it cannot be read: Permission denied"})


def test_nothing_is_measured_unless_asked_and_the_budget_allows_it(built):
    before = built.counted.now
    _, notes = further.further(built, left_s=5.0)
    assert notes == {"energy": "the budget ended before it was measured"}
    built.energy = False
    assert further.further(built) == ({}, {})
    assert built.counted.now == before
