"""A case from its first iteration to its last: warm-up, laps, and what they leave."""

import itertools
import subprocess
from dataclasses import asdict
from functools import partial
from types import SimpleNamespace

import pytest

from attnbench.devices.protocol import Meter
from attnbench.devices.timing import HostStopwatch
from attnbench.measuring import allocator, built
from attnbench.measuring.built import BuiltCase
from attnbench.measuring.worker import Worker
from attnbench.mechanisms.fastformer import Fastformer
from attnbench.mechanisms.transformer import Transformer
from attnbench.records import PASSES, Clock, Disturbance
from tests.doubles.core import MANY, Core
from tests.measuring.cases import answered, case, lapped, sent, timing


@pytest.mark.parametrize(("warmup_s", "mapped"), [(0.0, 1), (60.0, 0)])
def test_pages_are_mapped_ahead_of_a_case_longer_than_its_warm_up(monkeypatch, warmup_s, mapped):
    calls = []
    monkeypatch.setattr(allocator, "map_ahead", lambda: calls.append(1))
    monkeypatch.setattr("attnbench.devices.timing.is_cold", lambda faults, taken: True)
    asked = {**asdict(case()), "warmup_s": warmup_s, "faulting_s": 0.01}
    answered(Worker(None, seed=0), "build", **asked)
    assert len(calls) == mapped


def test_a_sample_without_time_is_a_failure_and_no_number():
    stopped = HostStopwatch(lambda: 0.0, lambda: 0.0)
    worker = timing(lambda lap: lap("forward"), stopped, Meter(), 1.0)
    answer = worker.answer("lap", iterations=1)
    assert answer["outcome"] == "failed"
    assert "no time" in answer["reason"]


@pytest.mark.parametrize("mode", PASSES)
@pytest.mark.parametrize(("cycles", "noted"), [(0, False), (7, False), (200, True)])
def test_what_iterations_leave_to_the_collector_is_counted(monkeypatch, mode, cycles, noted):
    """It is off while laps run. What only the first iteration leaves does not count."""
    forward, first = Fastformer.forward, [None]

    def littering(self, *inputs):
        for _ in range(cycles + (1000 if first else 0)):
            (cycle := []).append(cycle)
        first.clear()
        return forward(self, *inputs)

    monkeypatch.setattr(Fastformer, "forward", littering)
    tested = case("fastformer", "eager", mode=mode)
    worker = Worker(None, seed=0)
    answered(worker, "build", **sent(tested))
    for iterations in (3, 1):
        answered(worker, "lap", iterations=iterations)
    found = answered(worker, "finish")
    assert found["values"]["garbage"] == cycles
    assert ("garbage" in found["notes"]) == noted
    first.append(None)
    counted = answered(worker, "measure_memory", checked=True, **sent(tested))
    assert counted["values"]["garbage"] == cycles


def test_a_worker_takes_a_disturbed_lap_again_and_marks_one_that_stays_so():
    core, laps, faults = Core(), [], iter([MANY] * 4)

    def iterate(lap):
        laps.append(1)
        core.now = core.now[0] + 0.1, core.now[1] + next(faults, 0), 0.0
        lap("forward")

    watch = HostStopwatch(lambda: core.now[0], lambda: core.now[0], Clock.CPU)
    answers = timing(iterate, watch, core.meter, 0.1)
    cold = lapped(answers, iterations=1)
    assert len(laps) == 2
    assert (cold.disturbed, cold.waited_s, cold.seconds) == (Disturbance.FAULTS, 0.0, 0.1)
    assert lapped(answers, iterations=1).disturbed is Disturbance.FAULTS
    calm = lapped(answers, iterations=1)
    assert calm.disturbed is None
    laps.clear()
    answers.answer("lap", iterations=1, rehearse=True)
    assert len(laps) == 2


def test_a_rehearsal_goes_on_while_pages_fault_and_ends(monkeypatch):
    now, runs = [0.0], []
    monkeypatch.setattr(built.time, "perf_counter", lambda: now[0])
    one = BuiltCase.__new__(BuiltCase)

    def timed(iterations):
        runs.append(1)
        now[0] += 0.005
        return SimpleNamespace(iterations=1, seconds=0.005)

    one.time_iterations, one.meter = (
        timed,
        SimpleNamespace(faults=iter([0, 900, 950, 950, 950]).__next__),
    )
    one.rehearse()
    assert len(runs) == 3
    runs.clear()
    one.meter.faults = itertools.count(0, 900).__next__
    one.rehearse()
    assert len(runs) <= 21


def test_time_that_the_cpu_clock_does_not_see_counts_all_the_same(monkeypatch):
    """Whether it sleeps, or lets another process compute."""
    honest, sleep = Transformer.forward, partial(subprocess.run, ["sleep", "0.1"], check=True)
    monkeypatch.setattr(
        Transformer, "forward", lambda self, x, mask=None: (sleep(), honest(self, x, mask))[1]
    )
    answers = Worker(None, seed=0)
    built = answers.answer("build", **sent(case()))
    assert built["iteration_s"] >= 0.1, "else a lap would have many iterations"
    taken = lapped(answers, iterations=2)
    answers.answer("finish")
    assert taken.cpu_s < taken.wall_s
    assert taken.clock == Clock.CPU
    assert taken.seconds >= 0.1
