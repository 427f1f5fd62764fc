"""Energy of an iteration, from a counter that moves in steps of a clock that only tests move."""

from types import SimpleNamespace

import pytest

from attnbench.devices.protocol import Unavailable
from attnbench.errors import UsageError
from attnbench.measuring import energy as measured
from attnbench.measuring.energy import WINDOW_S, energy
from attnbench.running.request.options import read
from attnbench.running.request.requests import request

IDLE_W, BUSY_W = 60.0, 300.0


class Counted:
    """A case and its device, which consumes what it does, and says so `step_s` apart."""

    iteration_s = 0.002  # of the device; the host takes longer

    def __init__(self, step_s, busy_before=True):
        self.now = self.consumed = self.shown = 0.0
        self.step_s = step_s
        if busy_before:
            self.spend(0.73 * step_s, BUSY_W)  # of another process, which a step still shows

    def spend(self, seconds, watts):
        for _ in range(round(seconds / 1e-4)):
            self.now += 1e-4
            self.consumed += 1e-4 * watts
            if self.now % self.step_s < 1e-4:
                self.shown = self.consumed

    def joules(self):
        self.spend(0.001, IDLE_W)
        return self.shown

    def run(self):
        self.spend(0.01, BUSY_W)

    def synchronise(self):
        pass


@pytest.fixture
def found(monkeypatch):
    """What is found of a case, whose clock is that of the test."""

    def of(built, left_s=100.0):
        clock = SimpleNamespace(perf_counter=lambda: built.now)
        monkeypatch.setattr(measured, "time", clock)
        return energy(built.run, built, built.iteration_s, left_s)

    return of


@pytest.mark.parametrize(("step_s", "rel"), [(0.02, 0.03), (0.1, 0.03), (0.29, 0.02)])
def test_an_iteration_costs_its_time_at_the_power_of_its_device(found, step_s, rel):
    """What is consumed until the last step is no work."""
    built = Counted(step_s)
    values, notes = found(built)
    assert not notes
    assert values["energy_j"] == pytest.approx(0.01 * BUSY_W, rel=rel)
    assert values["power_w"] == pytest.approx(BUSY_W, rel=rel)
    assert built.now < measured.TAKES_S + 1.0


def test_why_energy_is_unknown_is_a_note(found):
    still = Counted(1e9, busy_before=False)
    assert found(still) == ({}, {"energy": "the energy counter did not change for 0.3 s"})
    assert still.now < WINDOW_S
    late = Counted(0.1)
    late.joules = None
    assert found(late, left_s=3.0) == ({}, {"energy": "the budget ended before it was measured"})

    def unreadable():
        raise Unavailable("it cannot be read: Permission denied")

    late.joules = unreadable
    assert found(late) == ({}, {"energy": "it cannot be read: Permission denied"})


def test_a_device_whose_energy_nothing_counts_is_refused():
    with pytest.raises(UsageError, match="--energy needs a GPU"):
        request(read({"energy": True, "device": "cpu"}))
