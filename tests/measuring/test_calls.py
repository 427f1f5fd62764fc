"""Functions as they are timed: which one a name means, with which arguments, and how often."""

import gc
import random
import sys

import pytest

from attnbench.measuring.calls import CalledOnce, Worker, seed
from attnbench.measuring.server import Unmeasured

FUNCTIONS = """
import random

calls = []


def counted(times=1):
    calls.append(times)


def made(times=1):
    return lambda: calls.append(("made", times))


def given(benchmark, times=1):
    benchmark(calls.append, times)


def pedantic(benchmark):
    benchmark.pedantic(calls.append, args=("pedantic",), rounds=3)


def prepared(benchmark):
    benchmark.pedantic(calls.append, setup=list)


def idle(benchmark):
    pass


def lazy():
    yield 1


def drawn():
    number = random.random()
    return lambda: number


class Group:
    def method(self):
        calls.append("method")
"""


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """A worker of a tree with these functions, and the garbage collector as it was."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    yield Worker(str(tmp_path), seed=3)
    gc.enable()


def called(worker, name, options=(), times=2):
    """What the functions of the file have noted once one is ready and has been called."""
    call = worker.call_of(f"functions.py:{name}", options)
    calls = sys.modules[worker.function_named("functions.py:counted").__module__].calls
    calls.clear()
    for _ in range(times):
        call()
    return calls


def test_a_function_is_called_with_its_options(worker):
    assert called(worker, "counted", [("times", 5)]) == [5, 5]


def test_what_a_function_returns_is_timed_if_it_can_be_called(worker):
    assert called(worker, "made", [("times", 5)]) == [("made", 5)] * 2


@pytest.mark.parametrize(("name", "noted"), [("given", 1), ("pedantic", "pedantic")])
def test_what_a_test_gives_to_its_fixture_is_timed(worker, name, noted):
    assert called(worker, name) == [noted] * 2


def test_a_method_is_that_of_a_new_instance(worker):
    assert called(worker, "Group.method") == ["method"] * 2


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("lazy", "returns a generator that nobody runs"),
        ("idle", "gives nothing to its fixture benchmark"),
        ("prepared", "not timed with a setup"),
    ],
)
def test_what_would_time_nothing_is_refused(worker, name, said):
    with pytest.raises(TypeError, match=said):
        worker.call_of(f"functions.py:{name}", ())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("other.py:counted", "there is no file other.py"),
        ("functions.py:other", "functions.py has no other"),
        ("functions.py:Group.other", "functions.py has no Group.other"),
        ("nothing_of_this.name:f", "there is no module nothing_of_this"),
        ("json:dumps", "json comes from .*, which is not in this repository"),
    ],
)
def test_what_a_tree_lacks_is_missing(worker, name, said):
    with pytest.raises(Unmeasured, match=said) as raised:
        worker.function_named(name)
    assert raised.value.outcome == "missing"


def test_random_numbers_start_from_the_seed_of_the_worker(worker):
    """Before the function is called for the first time."""
    found = []
    for number in (3, 3, 4):
        worker.seed = number
        found.append(worker.call_of("functions.py:drawn", ())())
    assert found[0] == found[1] != found[2]
    seed(3)
    assert random.random() == found[0]


def test_a_lap_is_so_many_calls_and_counts_them(worker):
    calls = called(worker, "counted", times=0)
    worker.call = worker.call_of("functions.py:counted", ())
    calls.clear()
    sample = worker.sample_calls(7)
    assert (sample.iterations, len(calls)) == (7, 7)


def test_a_fixture_keeps_the_last_call_and_what_it_returned():
    benchmark = CalledOnce()
    assert benchmark.call is None
    assert benchmark(max, 3, 5) == 5
    assert benchmark.call() == 5
    assert benchmark.pedantic(sum, args=([1, 2],), rounds=9) == 3
    assert benchmark.call() == 3
