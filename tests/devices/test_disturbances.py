"""What disturbs a lap on a CPU is read from the system, and laps are taken again for it alone."""

import itertools
import math
import subprocess
from functools import partial
from types import SimpleNamespace

import pytest

from attnbench.devices.disturbances import CoreMeter, account, share, waited_s
from attnbench.devices.timing import FAULT_S, HostStopwatch
from attnbench.measuring import built
from attnbench.measuring.built import Built
from attnbench.measuring.worker import Worker
from attnbench.mechanisms.transformer import Transformer
from attnbench.records import Clock, Disturbance
from tests.measuring.cases import case, lapped, sent, timing


def test_waiting_is_read_in_seconds_where_the_system_says_it(tmp_path):
    for task, text in (("7", "5000000 250000000 9\n"), ("8", "1 1500000000 2\n"), ("9", None)):
        folder = tmp_path / "self" / "task" / task
        folder.mkdir(parents=True)
        if text is not None:  # or the thread has just ended
            (folder / "schedstat").write_text(text)
    assert waited_s(tmp_path) == pytest.approx(1.75)
    assert math.isnan(waited_s(tmp_path / "self"))
    assert min(account()[:2]) > 0
    meter = CoreMeter(account=lambda: (1.0, 1, math.nan))
    with meter:
        pass
    assert meter.waited_s is None
    assert math.isnan(meter.waited())


@pytest.mark.parametrize(
    ("cpu_s", "waited_s", "found"), [(1.0, 0.0, 1.0), (1.0, 3.0, 0.25), (1.0, math.nan, None)]
)
def test_the_share_of_a_core_is_what_was_computed_of_what_was_wanted(cpu_s, waited_s, found):
    assert share(cpu_s, waited_s) == found
    assert share(0.0, waited_s) is None


class Core:
    """A core with an account that a test changes."""

    def __init__(self):
        self.now = 0.0, 0, 0.0
        self.meter = CoreMeter(lambda: self.now)


MANY = round(0.011 * 0.1 / FAULT_S)


@pytest.mark.parametrize(
    ("faults", "waited_s", "slow"),
    [(0, 0.0, False), (MANY, 0.0, True), (MANY // 2, 0.0, False), (0, 9.0, False)],
)
def test_a_lap_is_disturbed_by_page_faults(faults, waited_s, slow):
    core = Core()
    with core.meter:
        core.now = 0.1, faults, waited_s
    assert core.meter.disturbed is (Disturbance.FAULTS if slow else None)
    assert (core.meter.is_slow, core.meter.waited_s) == (slow, waited_s)


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
    one = Built.__new__(Built)

    def timed(iterations):
        runs.append(1)
        now[0] += 0.005
        return SimpleNamespace(iterations=1, seconds=0.005)

    one.timed, one.meter = timed, SimpleNamespace(faults=iter([0, 900, 950, 950, 950]).__next__)
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
