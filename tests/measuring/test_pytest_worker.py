"""Tests that are timed from within pytest: what became of them, and laps with a set-up."""

import os
import sysconfig
from types import SimpleNamespace

import pytest
from msgspec import json

from attnbench.measuring import pytest_worker
from attnbench.measuring.pytest_run import FAILED, PASSED, TimedTest, TriedTest
from attnbench.measuring.pytest_worker import (
    BASE,
    SETTING_UP_S,
    UNTIMED,
    Trials,
    Watch,
    Worker,
    in_child,
    is_installed,
    kept_trials,
    trials_in,
    why_untimed,
)
from attnbench.records import MISSING, Clock

GOOD = TriedTest(outcome=PASSED)
BAD = TriedTest(outcome=FAILED, reason="no")


def test_a_test_of_a_file_that_could_not_be_read_says_why():
    trials = Trials(tests={"t.py::a": GOOD}, unread={"u.py": "ImportError: x"})
    assert trials.of("t.py::a") == GOOD
    assert trials.of("t.py::b") is None
    assert trials.of("u.py::a").reason == "u.py cannot be collected: ImportError: x"
    failed = Trials(error="it did not start")
    assert failed.of("t.py::b") == TriedTest(outcome=FAILED, reason="it did not start")


def test_what_a_process_has_kept_is_read_again_by_side(tmp_path):
    kept = Trials(tests={"t.py::a": BAD}, error="e", modules=("m.py",))
    (tmp_path / "tests-base.json").write_bytes(json.encode(kept))
    assert kept_trials(tmp_path, BASE).of("t.py::a") == BAD
    assert trials_in(tmp_path / "tests-head.json").tests == {}


class Trying:
    """A run that ends its process, or leaves what became of a test."""

    def __init__(self, ends):
        self.ends = ends
        self.trials, self.unread, self.error = {}, {}, ""

    def main(self):
        if self.ends:
            os._exit(3)
        self.trials["t.py::a"] = BAD


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # as it forks
@pytest.mark.parametrize("ends", [False, True])
def test_tests_that_end_their_process_leave_no_file(tmp_path, ends, monkeypatch):
    monkeypatch.setattr(pytest_worker, "end_children", lambda: 0)
    file = tmp_path / "tests.json"
    in_child(Trying(ends), file)
    assert file.exists() is not ends
    if not ends:
        assert trials_in(file).of("t.py::a") == BAD
        assert os.path.realpath(pytest.__file__) in trials_in(file).modules


def test_why_a_test_was_not_timed_is_what_became_of_it():
    run = Trying(ends=False)
    assert why_untimed(run, "t.py::a") == (MISSING, "there is no test t.py::a")
    run.main()
    assert why_untimed(run, "t.py::a") == (FAILED, "no")
    run.trials["t.py::a"] = GOOD
    assert why_untimed(run, "t.py::a")[1] == "gave nothing to be timed, as it did before"


@pytest.fixture
def world(monkeypatch):
    """A worker whose clocks move by what its target, its set-up and its teardown take."""
    worker, now = Worker.__new__(Worker), [0.0]
    worker.watch = Watch(lambda: now[0], lambda: now[0], Clock.CPU)
    worker.waited = lambda: 0.0
    monkeypatch.setattr(pytest_worker.time, "monotonic", lambda: now[0])

    def taking(seconds):
        def work(*args, **kwargs):
            now[0] += seconds

        return work

    return worker, taking


def test_set_ups_and_teardowns_are_in_no_sample(world):
    worker, taking = world
    worker.timed = TimedTest(target=taking(0.01), setup=taking(0.03), teardown=taking(0.005))
    lapped = worker.lap(SimpleNamespace(iterations=3))
    assert lapped.sample.iterations == 3
    assert lapped.sample.forward_s == lapped.sample.cpu_s == pytest.approx(0.03)
    assert lapped.untimed_s == pytest.approx(3 * 0.035)
    assert worker.share == 1


def test_calls_that_there_is_no_time_for_are_counted_in_proportion(world):
    """After `SETTING_UP_S` no further call begins."""
    worker, taking = world
    worker.timed = TimedTest(target=taking(0.01), setup=taking(SETTING_UP_S / 1.9))
    lapped = worker.lap(SimpleNamespace(iterations=10))
    assert worker.share == 5
    assert lapped.sample.iterations == 10
    assert lapped.sample.forward_s == lapped.sample.wall_s == pytest.approx(10 * 0.01)


def test_without_a_set_up_calls_are_in_a_row(world):
    worker, taking = world
    worker.timed, worker.call = TimedTest(target=taking(0.01)), taking(0.01)
    lapped = worker.lap(SimpleNamespace(iterations=100))
    assert (lapped.untimed_s, lapped.sample.cpu_s) == (0.0, pytest.approx(1.0))


def test_a_watch_rests_in_what_is_not_timed():
    now = [0.0]
    watch = Watch(lambda: now[0], lambda: now[0], Clock.CPU)
    watch.reset(1)
    watch.start()
    for phase, seconds in ((UNTIMED, 5.0), ("forward", 2.0), (UNTIMED, 7.0)):
        now[0] += seconds
        watch.lap(phase)
    assert watch.untimed_s == 12.0
    assert watch.sample(1).forward_s == watch.wall_s == 2.0


def test_what_is_installed_is_no_source_of_a_test():
    assert is_installed("/x/site-packages/m.py")
    assert is_installed(os.path.join(sysconfig.get_path("stdlib"), "json", "__init__.py"))
    assert not is_installed("/repository/m.py")
