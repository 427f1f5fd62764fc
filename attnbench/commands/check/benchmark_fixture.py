"""The fixture `benchmark`, where no other plug-in of pytest offers it.

It has what tests use of pytest-benchmark's, and calls what it is given once, or as often as
`pedantic` is asked to.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

FIXTURE = "benchmark"
OPTIONS = (
    ("disable", "Call what is benchmarked once, and take no time."),
    ("skip", "Skip tests that use the fixture benchmark."),
    ("only", "Skip tests that do not use the fixture benchmark."),
)


class Stats:
    """Seconds of each round, under the names of pytest-benchmark: `stats["mean"]`, `stats.mean`."""

    def __init__(self, data: Sequence[float], iterations: int) -> None:
        self.data = list(data)
        self.iterations = iterations

    @property
    def stats(self) -> "Stats":
        """These numbers, as `benchmark.stats.stats`."""
        return self

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return len(self.data)

    @property
    def total(self) -> float:
        """Seconds of all rounds."""
        return sum(self.data)

    @property
    def min(self) -> float:
        """Seconds of the shortest round."""
        return min(self.data)

    @property
    def max(self) -> float:
        """Seconds of the longest round."""
        return max(self.data)

    @property
    def mean(self) -> float:
        """The mean."""
        return statistics.mean(self.data)

    @property
    def median(self) -> float:
        """The median."""
        return statistics.median(self.data)

    @property
    def stddev(self) -> float:
        """The standard deviation; 0 of one round."""
        return statistics.stdev(self.data) if self.rounds > 1 else 0.0

    @property
    def q1(self) -> float:
        """The lower quartile."""
        return self.quartiles[0]

    @property
    def q3(self) -> float:
        """The upper quartile."""
        return self.quartiles[2]

    @property
    def iqr(self) -> float:
        """The distance of the quartiles."""
        return self.q3 - self.q1

    @property
    def ops(self) -> float:
        """Rounds in a second; 0 if they took no time."""
        return self.rounds / self.total if self.total else 0.0

    @property
    def quartiles(self) -> list[float]:
        """The three quartiles."""
        if self.rounds == 1:
            return self.data * 3
        return statistics.quantiles(self.data, n=4, method="inclusive")


class Benchmark:
    """Calls what a test gives it, and returns what that returns."""

    def __init__(self, item: pytest.Item, disabled: bool) -> None:
        callspec = getattr(item, "callspec", None)
        mark = item.get_closest_marker(FIXTURE)
        self.name = item.name
        self.fullname = item.nodeid
        self.param: str | None = callspec.id if callspec else None
        self.params: Mapping[str, Any] | None = callspec.params if callspec else None
        self.group: str | None = mark.kwargs.get("group") if mark else None
        self.disabled = disabled
        self.extra_info: dict[str, Any] = {}
        self.stats: Stats | None = None
        self.is_used = False

    @property
    def enabled(self) -> bool:
        """Whether calls are timed."""
        return not self.disabled

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self.pedantic(function, args, kwargs)

    def pedantic(
        self,
        target: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        setup: Callable[[], Any] | None = None,
        teardown: Callable[..., Any] | None = None,
        rounds: int = 1,
        warmup_rounds: int = 0,
        iterations: int = 1,
    ) -> Any:
        """Call `target` `iterations` times in each of `rounds`; return the last result.

        What `setup` returns, if anything, takes the place of the arguments. Raises `ValueError`
        for numbers that make no sense, `RuntimeError` if it was used before.
        """
        if self.is_used:
            raise RuntimeError("the fixture benchmark can be used once in a test")
        if rounds < 1 or iterations < 1 or warmup_rounds < 0:
            raise ValueError("rounds and iterations are at least 1, and warmup_rounds at least 0")
        if setup and iterations > 1:
            raise ValueError("with a setup, iterations is 1")
        self.is_used = True
        if self.disabled:
            warmup_rounds = 0
            rounds = 1
            iterations = 1
        taken = list[float]()
        result = None
        for _ in range(warmup_rounds + rounds):
            made = setup() if setup else None
            positional, named = made or (args, kwargs or {})
            begun = time.perf_counter()
            for _ in range(iterations):
                result = target(*positional, **named)
            taken.append((time.perf_counter() - begun) / iterations)
            if teardown:
                teardown(*positional, **named)
        if self.enabled:
            self.stats = Stats(taken[warmup_rounds:], iterations)
        return result

    def weave(self, *_: Any, **__: Any) -> None:
        """Raises `ImportError`: this needs the package that replaces functions."""
        raise ImportError("benchmark.weave needs pytest-benchmark; pip install pytest-benchmark")

    patch = weave


class StandIn:
    """A plug-in with the fixture, and with those options that suites commonly set."""

    @pytest.fixture
    def benchmark(self, request: pytest.FixtureRequest) -> Benchmark:
        """Calls what it is given."""
        return Benchmark(request.node, bool(request.config.getoption("benchmark_disable")))

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Skip what `--benchmark-skip` or `--benchmark-only` leaves out."""
        for item in items:
            is_benchmark = FIXTURE in getattr(item, "fixturenames", ())
            only, skip = (config.getoption(f"benchmark_{name}") for name in ("only", "skip"))
            if only and not is_benchmark:
                item.add_marker(pytest.mark.skip(reason="--benchmark-only"))
            elif skip and not only and is_benchmark:
                item.add_marker(pytest.mark.skip(reason="--benchmark-skip"))


def offers_fixture(plugins: pytest.PytestPluginManager) -> bool:
    """Whether a plug-in that is loaded has a fixture of this name."""
    return any(hasattr(plugin, FIXTURE) for plugin in plugins.get_plugins())


def add_options(parser: pytest.Parser) -> None:
    """Add the options of `OPTIONS`."""
    group = parser.getgroup(FIXTURE, "benchmarks, where pytest-benchmark is not installed")
    for name, meaning in OPTIONS:
        group.addoption(f"--benchmark-{name}", action="store_true", default=False, help=meaning)
