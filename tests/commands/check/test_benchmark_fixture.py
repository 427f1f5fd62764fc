"""The fixture `benchmark` as a stand-in: what it calls, how often, and the numbers it gives."""

import statistics
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.commands.check.benchmark_fixture import (
    Benchmark,
    StandIn,
    Stats,
    offers_fixture,
)

SECONDS = st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=20)


def benchmark(disabled=False, group=None, callspec=None):
    """The fixture of a test with this mark and these parameters."""
    mark = SimpleNamespace(kwargs={"group": group}) if group else None
    item = SimpleNamespace(
        name="test_x", nodeid="tests/test_x.py::test_x", get_closest_marker=lambda name: mark
    )
    if callspec:
        item.callspec = callspec
    return Benchmark(item, disabled)


def test_what_is_called_gets_its_arguments_and_its_result_comes_back():
    fixture = benchmark()
    assert fixture(divmod, 7, 2) == (3, 1)
    assert fixture.stats.rounds == 1
    assert fixture.stats["mean"] == fixture.stats.stats.mean > 0


def test_pedantic_calls_as_often_as_it_is_asked_and_keeps_the_rounds_alone():
    seen = []
    fixture = benchmark()
    kwargs = {"rounds": 3, "iterations": 4, "warmup_rounds": 2}
    fixture.pedantic(seen.append, (1,), teardown=lambda x: seen.append(-x), **kwargs)
    assert seen == ([1] * 4 + [-1]) * 5
    assert (fixture.stats.rounds, fixture.stats.iterations) == (3, 4)


def test_what_a_setup_returns_takes_the_place_of_arguments_in_each_round():
    made = iter([((1,), {"end": "a"}), ((2,), {"end": "b"}), None])
    seen = []
    fixture = benchmark()
    fixture.pedantic(
        lambda *args, **kwargs: seen.append((args, kwargs)),
        ("own",),
        setup=lambda: next(made),
        rounds=3,
    )
    assert seen == [((1,), {"end": "a"}), ((2,), {"end": "b"}), (("own",), {})]


def test_a_fixture_that_is_disabled_calls_once_and_has_no_numbers():
    seen, fixture = [], benchmark(disabled=True)
    fixture.pedantic(seen.append, (1,), rounds=9, warmup_rounds=9, iterations=9)
    assert seen == [1]
    assert (fixture.stats, fixture.enabled, fixture.disabled) == (None, False, True)


@pytest.mark.parametrize(
    "asked", [{"rounds": 0}, {"iterations": 0}, {"warmup_rounds": -1}, {"iterations": 2}]
)
def test_numbers_that_make_no_sense_are_refused_before_anything_is_called(asked):
    seen = []
    with pytest.raises(ValueError, match=r"at least|with a setup"):
        benchmark().pedantic(seen.append, setup=lambda: seen.append(1), **asked)
    assert seen == []


def test_a_fixture_is_used_once_and_replaces_no_functions():
    fixture = benchmark()
    fixture(int)
    with pytest.raises(RuntimeError, match="once in a test"):
        fixture(int)
    with pytest.raises(ImportError, match="needs pytest-benchmark"):
        fixture.weave(int)


def test_a_test_is_known_by_its_name_parameters_and_group():
    fixture = benchmark(group="one", callspec=SimpleNamespace(id="1-a", params={"n": 1}))
    assert (fixture.name, fixture.fullname) == ("test_x", "tests/test_x.py::test_x")
    assert (fixture.param, fixture.params, fixture.group) == ("1-a", {"n": 1}, "one")
    plain = benchmark()
    assert (plain.param, plain.params, plain.group) == (None, None, None)


@given(SECONDS)
def test_the_numbers_of_rounds_are_in_order_and_agree(data):
    stats = Stats(data, 1)
    names = ("min", "q1", "median", "q3", "max")
    ordered = [stats[name] for name in names]
    assert ordered == pytest.approx(sorted(ordered))
    assert stats.min <= stats.mean * (1 + 1e-12)
    assert stats.iqr == stats.q3 - stats.q1
    assert stats.ops == pytest.approx(1 / statistics.fmean(data))
    assert stats.stddev == 0 or len(set(data)) > 1
    assert stats["total"] == sum(data)


def test_the_quartiles_are_those_between_the_rounds():
    stats = Stats([4.0, 1.0, 3.0, 2.0, 5.0], 1)
    assert (stats.q1, stats.median, stats.q3) == (2.0, 3.0, 4.0)
    assert Stats([7.0], 1).quartiles == [7.0] * 3
    assert Stats([0.0], 1).ops == 0


@pytest.mark.parametrize(
    ("options", "skipped"),
    [
        ((), []),
        (("skip",), ["timed"]),
        (("only",), ["plain"]),
        (("only", "skip"), ["plain"]),
    ],
)
def test_options_skip_benchmarks_or_all_else(options, skipped):
    marked = []

    def test(name, *fixtures):
        return SimpleNamespace(fixturenames=fixtures, add_marker=lambda mark: marked.append(name))

    asked = {f"benchmark_{name}": name in options for name in ("only", "skip")}
    config = SimpleNamespace(getoption=asked.__getitem__)
    StandIn().pytest_collection_modifyitems(
        config, [test("timed", "benchmark", "tmp_path"), test("plain", "tmp_path")]
    )
    assert marked == skipped


def test_another_plug_in_that_has_the_fixture_is_found():
    def of(*plugins):
        return offers_fixture(SimpleNamespace(get_plugins=lambda: plugins))

    assert not of(object())
    assert of(object(), SimpleNamespace(benchmark=1))
