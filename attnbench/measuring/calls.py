"""One measuring process for functions; it loads torch only if they do."""

import gc
import importlib
import inspect
import math
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from attnbench.devices import find
from attnbench.devices.protocol import Iterate
from attnbench.devices.timing import HostStopwatch, increments, repeated, sample, warm_up
from attnbench.measuring import allocator, results
from attnbench.measuring.answering import Answering
from attnbench.measuring.server import Unmeasured, end_children
from attnbench.mechanisms import catalogue
from attnbench.records import Clock, Sample, messages, notes

# the random generators that functions commonly use
SEEDS = (("random", "seed"), ("numpy.random", "seed"), ("torch", "manual_seed"))


class CalledOnce:
    """The fixture `benchmark` of pytest-benchmark: it calls once what a test gives it to time."""

    call: Callable[[], Any] | None = None

    def __init__(self) -> None:
        self.extra_info: dict[str, Any] = {}

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.call = partial(function, *args, **kwargs)
        return self.call()

    def pedantic(self, target: Any, args: Any = (), kwargs: Any = None, **hooks: Any) -> Any:
        """The same; how often it is called is decided elsewhere. Raises `TypeError`."""
        if hooks.get("setup") or hooks.get("teardown"):
            raise TypeError("benchmark.pedantic is not timed with a setup or teardown")
        return self(target, *args, **(kwargs or {}))


class Worker(Answering):
    """Serves one source tree; a `mechanism` is `package.module:function` or `file.py:function`.

    A method is `file.py:Class.method`. Arguments are given as options.
    """

    def __init__(self, tree: str | None, seed: int, **_: Any) -> None:
        self.tree = Path(tree or ".").resolve()
        self.seed = seed
        self.waited = find("cpu").meter().waited
        self.watch: HostStopwatch = HostStopwatch(counts=Clock.CPU)
        allocator.keep_pages()

    def measure_memory(self, question: messages.MeasureMemory) -> messages.Weighed:
        """Call the function once; nothing is counted."""
        self.call_of(question.mechanism, question.options)()
        return messages.Weighed(values={}, case=question.mechanism)

    def outputs(self, question: messages.Outputs) -> messages.Compared:
        """Keep in a file what the function returns, or compare it with what is kept there."""
        value = self.call_of(question.mechanism, question.options)()
        keep_or_compare = results.keep if question.keeps else results.compare
        return keep_or_compare(value, question.path, str(self.tree))

    def build(self, question: messages.Build) -> messages.ProcessAnswer:
        """Call the function until its times are steady, for at most the time of the warm-up."""
        self.call = self.call_of(question.mechanism, question.options)
        return self.warm_up(question.warmup_s)

    def warm_up(self, warmup_s: float) -> messages.Warm:
        """Call what is timed until its times are steady; answers how long a call takes."""
        iterate = self.iteration()
        first = sample(iterate, lambda: None, self.watch, 1)
        warm = warm_up(iterate, lambda: None, self.watch, first, warmup_s)
        gc.collect()
        gc.disable()  # a collection would disturb the samples of one process alone
        return messages.Warm(iteration_s=warm[-1].wall_s, wall_s=warm[-1].wall_s)

    def lap(self, question: messages.Lap) -> messages.Lapped:
        """One sample of some calls, without the cost of a clock in between."""
        return messages.Lapped(sample=self.sample_calls(question.iterations))

    def sample_calls(self, calls: int) -> Sample:
        """A sample of so many calls."""
        new_wait_s = increments(self.waited)
        lap = sample(self.iteration(calls), lambda: None, self.watch, 1)
        waited_s = new_wait_s()
        recorded_s = None if math.isnan(waited_s) else waited_s
        return lap._replace(iterations=calls, waited_s=recorded_s)

    def iteration(self, calls: int = 1) -> Iterate:
        """That many calls of what is timed, in a row."""
        return repeated(self.call, calls)

    def finish(self, question: messages.Finish) -> messages.Finished:
        """The process measures nothing else, since a function may leave anything behind."""
        return messages.Finished(
            values={}, notes=notes.left_running(end_children()), needs_new_process=True
        )

    def has(self, question: messages.HasFunction) -> messages.Done:
        """Whether there is such a function; it is not called. Raises `Unmeasured`."""
        self.function_named(question.mechanism)
        return messages.Done()

    def function_named(self, name: str) -> Callable[..., Any]:
        """The function of this name. Raises `Unmeasured`."""
        place, _, attribute = name.rpartition(":")
        is_file = place.endswith(".py")
        if is_file and not (self.tree / place).is_file():
            raise Unmeasured("missing", f"there is no file {place}")
        try:
            module = (
                catalogue.module_of(self.tree / place)
                if is_file
                else importlib.import_module(place)
            )
        except ModuleNotFoundError as error:
            if not is_file and error.name and f"{place}.".startswith(f"{error.name}."):
                raise Unmeasured("missing", f"there is no module {error.name}") from error
            raise
        file = Path(module.__file__ or "/").resolve()
        if not file.is_relative_to(self.tree):
            raise Unmeasured(
                "missing", f"{place} comes from {file}, which is not in this repository"
            )
        *owner, method = attribute.split(".")
        try:
            instance = attrgetter(".".join(owner))(module)() if owner else module
            function: Callable[..., Any] = getattr(instance, method)
        except AttributeError as error:
            raise Unmeasured("missing", f"{place} has no {attribute}") from error
        return function

    def call_of(self, name: str, options: Any) -> Callable[[], Any]:
        """The function with its arguments, what it returns if that can be called, or what it gives
        to the fixture `benchmark`. Raises `Unmeasured`.
        """
        function = self.function_named(name)
        seed(self.seed)
        benchmark = CalledOnce()
        arguments: dict[str, Any] = dict(options)
        if "benchmark" in inspect.signature(function).parameters:
            arguments["benchmark"] = benchmark
        result = function(**arguments)
        if isinstance(result, Awaitable | AsyncIterator | Generator):
            kind = type(result).__name__
            raise TypeError(f"{name} returns a {kind} that nobody runs; name a function that does")
        if "benchmark" in arguments and not benchmark.call:
            raise TypeError(f"{name} gives nothing to its fixture benchmark")
        return benchmark.call or (result if callable(result) else partial(function, **arguments))


def seed(number: int) -> None:
    """Start the random generators that are loaded from this number."""
    for generator, start in SEEDS:
        if generator in sys.modules:
            getattr(sys.modules[generator], start)(number)
