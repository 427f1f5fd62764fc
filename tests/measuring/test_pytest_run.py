"""A run of pytest in one tree: what it runs, what tests give to be timed, and what they became."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from attnbench.measuring.pytest_run import (
    FAILED,
    PASSED,
    UNSUPPORTED,
    NamedTests,
    PytestFolders,
    PytestRun,
    TimedTest,
    TriedTest,
    Trying,
    is_timed,
    last_error,
    name_of,
    notice,
    trial_of,
    why_idle,
)


@pytest.fixture
def place(tmp_path):
    return PytestFolders(
        tree=tmp_path / "base",
        root=Path("/repository"),
        rootdir="packages/a",
        folder=".",
        arguments=("/repository/tests", "--co=/repository/x", "-q"),
        scratch=tmp_path,
    )


def test_the_users_run_is_that_of_the_other_tree(place):
    tree = place.tree
    assert place.command() == [
        *(f"{tree}/tests", f"--co={tree}/x", "-q"),
        f"--rootdir={tree}/packages/a",
    ]
    assert place.name("tests/test_a.py::test_b") == "packages/a/tests/test_a.py::test_b"
    assert name_of("tests/test_a.py::test_b", ".") == "tests/test_a.py::test_b"


def test_a_parameter_that_is_a_path_of_the_tree_names_the_same_test_on_both_sides(place):
    here = f"tests/test_a.py::test_b[{place.tree}/data/x.txt]"
    name = "packages/a/tests/test_a.py::test_b[/repository/data/x.txt]"
    assert place.name(here) == name
    assert place.argument(name) == f"{place.tree}/packages/a/tests/test_a.py::test_b"
    odd = PytestFolders(**{**vars(place), "tree": Path("/base"), "root": Path("/app")})
    assert odd.name("services/base/test_a.py::t[/base/x]") == (
        "packages/a/services/base/test_a.py::t[/app/x]"
    )


@pytest.mark.parametrize(
    ("argument", "named"),
    [
        ("tests", True),
        ("tests/test_a.py", True),
        ("tests/test_b.py", False),
        ("tests/test_a.py::TestOne", True),
        ("tests/test_a.py::TestOne::test_it", True),
        ("tests/test_a.py::TestOne::test_it[3]", True),
        ("tests/test_a.py::TestOne::test_it[4]", False),
        ("tests/test_a.py::TestOn", False),
    ],
)
def test_an_argument_names_what_is_within_it(argument, named, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, nodeid = tmp_path / "tests" / "test_a.py", "tests/test_a.py::TestOne::test_it[3]"
    item = SimpleNamespace(path=path, nodeid=nodeid)
    assert NamedTests.read(argument).has(item) is named


@pytest.mark.parametrize(
    ("setup", "args", "kwargs"),
    [
        (None, (1,), {"a": 2}),
        (lambda: None, (1,), {"a": 2}),
        (lambda: ((3,), {"b": 4}), (3,), {"b": 4}),
    ],
)
def test_a_set_up_may_return_the_arguments(setup, args, kwargs):
    timed = TimedTest(target=print, args=(1,), kwargs={"a": 2}, setup=setup)
    assert timed.next_arguments() == (args, kwargs)


def test_what_is_timed_is_marked_or_uses_the_fixture(request):
    item = request.node
    assert not is_timed(item)
    item.fixturenames.append("benchmark")
    assert is_timed(item)
    assert not is_timed(SimpleNamespace(fixturenames=["benchmark"]))


class Fixture:
    """As that of pytest-benchmark."""

    def __call__(self, target, *args, **kwargs):
        return target(*args, **kwargs)

    def pedantic(self, target, args=(), kwargs=None, setup=None, teardown=None, rounds=1):
        return target(*args, **(kwargs or {})), rounds


@pytest.fixture
def seen():
    """What instances of a class of such fixtures are called with."""
    kind, found = type("Noticed", (Fixture,), {}), []

    def seize(timed, go_on):
        found.append(timed)
        return go_on()

    notice(kind, seize)
    notice(kind, lambda timed, go_on: pytest.fail("it was noticed twice"))
    return kind(), found


def test_calls_of_the_fixture_are_noticed_and_go_on(seen):
    benchmark, found = seen
    assert benchmark(int, "7", base=8) == 7
    (timed,) = found
    assert (timed.target, timed.args, timed.kwargs) == (int, ("7",), {"base": 8})
    assert (timed.setup, timed.teardown) == (None, None)


def test_pedantic_is_noticed_with_its_set_up_wherever_that_stands(seen):
    benchmark, found = seen
    assert benchmark.pedantic(int, ("7",), {"base": 8}, list, rounds=3) == (7, 3)
    assert benchmark.pedantic(max, [(1, 2)], teardown=print) == (2, 1)
    assert [(timed.setup, timed.teardown) for timed in found] == [(list, None), (None, print)]
    assert found[1].args == ((1, 2),)


def test_a_class_that_is_not_written_in_python_stays_as_it_is():
    notice(object, pytest.fail)
    assert not hasattr(object, "noticed")


def report(outcome="passed", when="call", longrepr=None, **more):
    location = ("tests/test_a.py", 3, "test_b")
    return pytest.TestReport(
        "tests/test_a.py::test_b", location, {}, outcome, longrepr, when, **more
    )


@pytest.mark.parametrize(
    ("given", "outcome", "reason"),
    [
        (report(), PASSED, ""),
        (
            report("skipped", "setup", ("f.py", 3, "Skipped: no GPU\nhere")),
            UNSUPPORTED,
            "skips itself: no GPU",
        ),
        (report("skipped", wasxfail=""), UNSUPPORTED, "it is expected to fail"),
        (report(wasxfail=""), UNSUPPORTED, "it passes, though it is expected to fail"),
        (
            report(
                "failed", longrepr="f.py:3: in test\n    f()\nE   ValueError: no\nf.py:3: Error"
            ),
            FAILED,
            "failed: ValueError: no",
        ),
        (report("failed", "teardown", "all gone"), FAILED, "failed in its teardown: all gone"),
    ],
)
def test_a_report_says_what_became_of_a_test(given, outcome, reason):
    assert trial_of(given) == TriedTest(outcome=outcome, reason=reason)


def test_the_last_error_of_a_traceback_counts():
    assert last_error("E   KeyError: 1\n\nE   ValueError: 2\nx.py:3: ValueError") == "ValueError: 2"
    assert last_error("nothing\n  raised  \n") == "raised"
    assert last_error("") == ""


def test_the_first_phase_that_does_not_pass_counts(place):
    run = PytestRun(place)
    for given in (report(), report("failed", "teardown", "left"), report("failed", longrepr="no")):
        run.pytest_runtest_logreport(given)
    run.pytest_runtest_logreport(report(when="setup"))
    (trial,) = run.trials.values()
    assert trial.reason == "failed in its teardown: left"


def test_one_that_passes_and_gives_nothing_cannot_be_timed(place, monkeypatch):
    """Nor one that gives what nobody runs."""
    monkeypatch.setattr(PytestRun, "main", lambda self: None)
    run = Trying(place)
    run.trials = {name: TriedTest(outcome=PASSED) for name in ("gives", "idle", "lazy")}
    run.trials["fails"] = TriedTest(outcome=FAILED, reason="no")
    run.idle = dict.fromkeys(run.trials, "it gives nothing")
    run.name = "gives"
    assert run.seize(TimedTest(target=int), lambda: 3) == 3
    run.name = "lazy"
    run.seize(TimedTest(target=iter), lambda: (_ for _ in ()))
    run.main()
    assert {name: trial.reason for name, trial in run.trials.items()} == {
        "gives": "",
        "idle": "it gives nothing",
        "lazy": "what it times returns a generator that nobody runs",
        "fails": "no",
    }


async def waits():
    """An asynchronous test."""


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (SimpleNamespace(fixturenames=["benchmark"]), "gives nothing to its fixture benchmark"),
        (SimpleNamespace(fixturenames=[], obj=waits), "it is asynchronous"),
        (SimpleNamespace(), "does not call it as a function"),
    ],
)
def test_why_a_test_gave_nothing_is_said(item, said):
    assert said in why_idle(item)
