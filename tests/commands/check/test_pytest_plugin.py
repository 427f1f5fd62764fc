"""Suites of tests under `pytest --attnbench-base`: they run as without it, and are timed."""

import re

import pytest

from attnbench.commands.check.finding import CheckAnswer, CheckReport, Finding
from attnbench.commands.check.measuring import spread
from attnbench.commands.check.pytest_plugin import (
    ComparedTests,
    is_void,
    share_texts,
    summary,
    with_pytest_options,
)
from attnbench.records.metrics import TIME
from tests.commands.check.test_calls import pytested, run
from tests.commands.check.test_calls import shop as shop

CONFTEST = """
import pytest
import attnbench.commands.check.against as check
from attnbench.commands.check.finding import CheckAnswer, Finding, CheckReport
from attnbench.records.metrics import TIME


@pytest.fixture(scope="session")
def numbers(tmp_path_factory):
    place = tmp_path_factory.mktemp("numbers") / "numbers"
    place.write_text("3")
    yield place


def told(plan, base, asked, *_, **__):
    def finding(one):
        slower = "slow" in one.name
        answer = "slower" if slower else "not known" if "noisy" in one.name else "same"
        about = {"metric": "time_s", "answer": CheckAnswer(answer), "ratio": 1.0}
        if "noisy" in one.name:
            about |= {"reason": "no time was left", "decided_by": "needs about --budget 30s"}
        return Finding(mechanism=one.name, case=one.name, **about)

    return CheckReport(base=base, head="head", findings=tuple(map(finding, asked)))


check.against_revision = told
"""

TESTS = """
import enum
import json
import pytest
from shop.code import index


class Kind(enum.Enum):
    A = 1
    B = (2, 3)


class TestShop:
    def setup_method(self):
        self.text = "1"

    @pytest.mark.parametrize("n", [1, 2])
    def test_method(self, n, benchmark):
        assert benchmark(json.dumps, n) == str(n)


@pytest.mark.parametrize(("kind", "pair"), [(Kind.A, (1, 2)), (Kind.B, (object(), "a::b"))])
def test_any_parameter(benchmark, kind, pair):
    setup = lambda: (([kind],), {})
    assert benchmark.pedantic(list, setup=setup, rounds=3, warmup_rounds=1) == [kind]


def test_fixtures(benchmark, tmp_path, capsys, numbers):
    print(benchmark(numbers.read_text, encoding="utf-8"))
    assert capsys.readouterr().out == "3\\n"
    assert benchmark.name == "test_fixtures"
    assert benchmark.stats["mean"] > 0 and benchmark.stats.stats.min > 0
    assert not benchmark.disabled
    benchmark.group = "one"
    benchmark.extra_info["n"] = 1


@pytest.mark.attnbench
def test_body(numbers):
    assert numbers.exists()


def test_noisy(benchmark):
    benchmark(index)


def test_slow(benchmark):
    benchmark(index)


def test_nothing(benchmark):
    pass


def test_skips(benchmark):
    pytest.skip("not today")


@pytest.mark.xfail(reason="known")
def test_expected(benchmark):
    assert benchmark(index)


def test_generator(benchmark):
    benchmark(lambda: (n for n in range(3)))


def test_other():
    pass
"""


@pytest.fixture
def suite(shop):
    shop.write("tests/test_shop.py", TESTS)
    shop.write("conftest.py", CONFTEST)
    shop.commit("a suite")
    return shop


def test_a_suite_is_as_green_as_without_a_check_but_for_what_is_slower(suite):
    code, text = pytested(suite)
    assert (code, "11 passed, 1 skipped, 1 xfailed" in text) == (0, True), text
    code, text = pytested(suite, "--attnbench-base", "HEAD")
    assert (code, "1 failed, 9 passed, 2 skipped, 1 xfailed" in text) == (1, True), text
    assert "attnbench: FAILED: 1 slower" in text
    for reason in (
        "test_nothing: it gives nothing to its fixture benchmark",
        "test_skips: skips itself: not today",
        "test_expected: it is expected to fail",
        "test_generator: what it times returns a generator that nobody runs",
    ):
        assert f"not timed: tests/test_shop.py::{reason}" in text
    assert text.count("not timed: ") == 4
    # a skip stands where the test does, and advises pytest's own option
    line = 1 + TESTS.splitlines().index("def test_noisy(benchmark):")
    assert f"tests/test_shop.py:{line}: tests/test_shop.py::test_noisy: time unsure" in text
    assert "needs about --attnbench-budget 30s" in text


@pytest.mark.long
def test_options_of_suites_and_several_processes_do_no_harm(suite):
    suite.write("conftest.py", CONFTEST.replace('"slow" in one.name', "False"))
    asked = ("--attnbench-base", "HEAD", "-p", "xdist", "-n", "2", "--benchmark-disable")
    code, text = pytested(suite, *asked, "-k", "test_method or test_other")
    assert (code, "3 passed" in text) == (0, True), text
    assert "-n has no effect with --attnbench-base" in text
    code, text = pytested(suite, "--attnbench-base", "HEAD", "--benchmark-skip", "-k", "method")
    assert (code, "2 skipped" in text, "failed" in text) == (0, True, False), text
    code, text = pytested(suite, "--attnbench-base", "HEAD", "-k", "test_nothing")
    assert (code, "1 passed" in text) == (2, True), text
    assert "attnbench: NOT CHECKED: no test could be timed" in text
    code, text = pytested(suite, "--benchmark-only", "-k", "test_method or test_other")
    assert (code, "2 passed, 1 skipped" in text) == (0, True), text


@pytest.mark.parametrize(
    ("base", "words", "exit_code"),
    [("", "--attnbench-base is empty", 4), ("nowhere", "is not a commit", 2)],
)
def test_what_is_no_revision_is_refused(base, words, exit_code, shop):
    code, text = pytested(shop, "--attnbench-base", base)
    assert (code, words in text, "Traceback" in text) == (exit_code, True, False), text
    code, text = pytested(shop, "--attnbench-base", "HEAD", "--attnbench-budget", "soon")
    assert (code, "--attnbench-budget 'soon' is not a time above 0" in text) == (4, True), text


def test_an_empty_command_is_refused(shop):
    code, text = pytested(shop, "--attnbench-base", "HEAD", "--attnbench-prepare", " ")
    assert (code, "--attnbench-prepare ' ' is no command" in text) == (4, True), text


def test_advice_names_options_of_pytest():
    advice = "base lacks pack/fast.so; build it on both sides with --prepare 'pip install -e .'"
    assert "with --attnbench-prepare 'pip" in with_pytest_options(advice)
    assert with_pytest_options("--baseline x --no-base") == "--baseline x --no-base"


BUILT = """
import os
import pytest
from shop.code import index
from shop.built import NUMBER

HERE = os.path.dirname(__file__)


@pytest.mark.parametrize("path", [os.path.join(HERE, "test_shop.py")])
def test_index(benchmark, path):
    assert os.path.exists(path)
    benchmark(index)
"""
PLAIN = "def test_index(benchmark):\n    benchmark(sum, range(2000))\n"


@pytest.mark.long
def test_what_git_ignores_is_built_on_both_sides_and_paths_are_no_names(shop):
    shop.write(".gitignore", "built.py\n")
    shop.write("src/shop/built.py", "NUMBER = 1\n")
    shop.write("tests/test_shop.py", BUILT)
    shop.commit("two")
    options = ("--attnbench-base", "HEAD", "--attnbench-budget", "40s")
    code, text = pytested(shop, *options)
    assert "--attnbench-prepare 'pip install -e .'" in text, text
    options += ("--attnbench-prepare", "echo 'NUMBER = 1' > src/shop/built.py")
    code, text = pytested(shop, *options)
    assert code == 0 or (code == 1 and "slower" in text), text
    assert not re.search("lacks|added|gone", text), text


@pytest.mark.long
def test_a_conftest_that_head_deletes_slows_base_no_more(shop):
    """On base alone it would make what every test calls wait."""
    shop.write("tests/test_shop.py", PLAIN)
    shop.write("tests/conftest.py", "import time\n\nsum = lambda x: time.sleep(0.01)\n"
               "import builtins\nbuiltins.sum = sum\n")  # fmt: skip
    shop.commit("two")
    (shop.folder / "tests/conftest.py").unlink()
    _, text = pytested(shop, "--attnbench-base", "HEAD", "--attnbench-budget", "40s")
    assert "base ran without its tests/conftest.py, which head lacks" in text
    assert "faster" not in text, text


@pytest.mark.long
def test_a_new_test_is_timed_on_both_sides_and_one_that_is_gone_is_named(shop, tmp_path):
    """The file of the tests is head's on both sides, which is said; base has no test of its own.

    On a busy machine a test may be called slower or be left unsure, which is another test's matter.
    """
    old = "def test_{}(benchmark):\n    benchmark(sum, range(2000))\n\n\n"
    shop.write("tests/test_shop.py", old.format("kept") + old.format("gone"))
    shop.commit("two")
    shop.write("tests/test_shop.py", old.format("kept") + old.format("new"))
    code, text = pytested(shop, "--attnbench-base", "HEAD", "--attnbench-budget", "40s")
    assert code == 0 or (code == 1 and "slower" in text), text
    differs = "the benchmark itself differs: both sides ran head's tests/test_shop.py, whose own"
    assert differs in text
    ends = re.findall(r"(\d+) (?:passed|failed|skipped)", text.splitlines()[-1])
    assert sum(map(int, ends)) == 2, text
    assert "not timed" not in text
    gone = "tests/test_shop.py::test_gone: gone from head: base alone has it"
    assert f"attnbench: {gone}" in text
    asked = ("--attnbench-base", "HEAD", "--attnbench-budget", "40s", "--attnbench-strict")
    junit, summary = tmp_path / "junit.xml", tmp_path / "summary.md"
    shop.environment["GITHUB_STEP_SUMMARY"] = str(summary)
    code, text = pytested(shop, *asked, f"--junitxml={junit}")
    assert code == 3 or (code == 1 and "slower" in text), text
    assert re.search("passed|skipped|failed", text)
    assert 'value="tests/test_shop.py::test_gone"' in junit.read_text()
    assert "test_gone" in summary.read_text()


SET_UP = """
import time


def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_set_up(benchmark, tmp_path_factory, request):
    place = tmp_path_factory.getbasetemp().parent / "taken-down"
    request.addfinalizer(place.touch)

    def setup():
        burn(0.05)
        return ((0.0005,), {})

    benchmark.pedantic(burn, setup=setup, rounds=2)
"""

RACED = """
import random
from pathlib import Path
from attnbench.commands.check.starting import runner
from attnbench.commands.check.cases import SIDES
from attnbench.records.messages import Build
from attnbench.running.race import Round, Turns

root = Path.cwd()
arguments = ["-p", "attnbench.commands.check.pytest_plugin", "-p", "no:cacheprovider", "tests"]
place = dict(root=str(root), rootdir=".", folder=".", arguments=arguments, modules=["pytest"])
with runner(tests=place) as measuring:
    server = measuring.server
    for side in SIDES:
        server.hold(side, root)
    assert all(server.holders.values()), server.holders
    with Round(lambda side: server.process_of(side, root), random.Random(0)) as processes:
        test = Build(mechanism="tests/test_shop.py::test_set_up", options=())
        builds = dict.fromkeys(SIDES, test)
        turns = Turns(pairs=1, iterations=4)
        entries = processes.race(
            builds, lambda times: dict.fromkeys(times, turns), lambda *_: 60.0
        )
    left = len(list(server.folder.glob("**/taken-down")))
    print([(entry.failure, len(entry.laps)) for entry in entries.values()], left)
"""


def test_set_ups_between_laps_accuse_no_test_and_fixtures_are_taken_down(shop):
    shop.write("tests/test_shop.py", SET_UP)
    code, text = run(shop, "-c", RACED)
    assert (code, text) == (0, "[(None, 2), (None, 2), (None, 2)] 1\n"), text


def test_cases_that_fit_into_a_budget_are_spread_over_all():
    assert spread([*range(8)]) == [0, 4, 2, 6, 1, 5, 3, 7]
    assert [sorted(spread([*range(n)])) for n in range(20)] == [[*range(n)] for n in range(20)]


def finding_of(name, **about):
    about |= {"reason": "no time was left", "decided_by": "needs about --budget 90s"}
    return Finding(mechanism=name, case=name, metric=TIME, answer=CheckAnswer.NOT_KNOWN, **about)


def test_what_had_time_for_one_pair_is_not_red_and_what_had_none_is_named():
    timed = finding_of("a", base=1.0, head=1.0)
    report = CheckReport(base="base", head="head", findings=(timed, finding_of("b")))
    comparison = ComparedTests(report=report)
    assert not is_void(comparison)
    assert [*summary(comparison)][:1] + [*share_texts(comparison)] == [
        "UNSURE: no test got a verdict; no time was left; needs about --attnbench-budget 90s",
        "1 of 2 tests were timed on both sides, 0 got a verdict",
        "not compared: b: no time was left; needs about --attnbench-budget 90s",
    ]
    nothing = ComparedTests(
        report=CheckReport(base="base", head="head", findings=(finding_of("b"),))
    )
    assert is_void(nothing)
    assert "--attnbench-budget 90s" in "".join(summary(nothing))
