"""Which probes of a core are beside which lap."""

import random

import pytest

from attnbench.records import Disturbance, Sample
from attnbench.records.messages import Failure, Probe, ProbeTimes
from attnbench.running.pace import Pace
from attnbench.running.race import Round
from tests.doubles.machine import Machine
from tests.running.test_race import race

LAP = Sample(1, 0.1, 0.1, None, 0.1, 0, 0)


class Probing:
    """A process that probes a core, and has found what a test says."""

    alive = True

    def __init__(self):
        self.found = []

    def ask(self, question, limit_s):
        assert question == Probe(core=3)
        found, self.found = self.found, []
        return ProbeTimes(probes=tuple(found)) if self.alive else Failure(outcome="crashed")

    def end(self):
        self.alive = False


@pytest.fixture
def started():
    return []


@pytest.fixture
def pace(started):
    def start():
        started.append(Probing())
        return started[-1]

    with Pace(start, core=3) as pace:
        pace.reset()
        yield pace
    assert not any(process.alive for process in started)


def test_a_lap_has_the_mean_speed_of_the_probes_meanwhile(pace, started):
    (process,) = started
    assert pace.with_pace(LAP) == LAP, "nothing is known"
    process.found = [1.0] * 8
    pace.reset()
    process.found = [1.0, 0.5, 0.0, float("nan")]
    beside = pace.with_pace(LAP)
    assert beside.pace_s == pytest.approx(2 / 3)
    assert beside.disturbed is None
    assert pace.with_pace(LAP).pace_s == 0.5, "a short lap has that of the last probe"
    process.found = [1.5]
    assert pace.with_pace(LAP).disturbed is Disturbance.SLOW_CORE
    faulting = LAP._replace(disturbed=Disturbance.FAULTS)
    process.found = [1.5]
    assert pace.with_pace(faulting).disturbed is Disturbance.FAULTS


def test_a_process_that_has_ended_is_started_again(pace, started):
    started[0].alive = False
    assert pace.with_pace(LAP) == LAP
    pace.reset()
    assert len(started) == 2


def test_probes_beside_a_lap_that_failed_are_beside_no_other(pace, started):
    def fate(case, do):
        if do == "lap":
            started[0].found.append(9.0 if case.mechanism == "b" else 1.0)
        failed = (case.mechanism, do) == ("b", "lap")
        return {"outcome": "timeout", "reason": "it hangs"} if failed else None

    machine = Machine(fate=fate)
    with Round(machine.start, random.Random(0), machine.clock, pace) as round_:
        entries = race(round_)
    assert {sample.pace_s for entry in entries.values() for sample in entry.laps.values()} == {1.0}
