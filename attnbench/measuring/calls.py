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

from attnbench.devices.finding import find
from attnbench.devices.protocol import Iterate
from attnbench.devices.timing import HostStopwatch, increments, repeated, sample, warm_up
from attnbench.measuring import allocator, results
from attnbench.measuring.answering import Answering
from attnbench.measuring.server import Unmeasured, end_children
from attnbench.mechanisms.catalogue.registry import module_of
from attnbench.records import Clock, Sample
from attnbench.records.messages import (
    Build,
    Compared,
    Done,
    Finish,
    Finished,
    HasFunction,
    Lap,
    Lapped,
    MeasureMemory,
    Outputs,
    ProcessAnswer,
    Warm,
    Weighed,
)
from attnbench.records.notes import left_running

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

    def pedantic(self, target: Any, args: Any = (), kwargs: Any = None, **how: Any) -> Any:
        """The same; how often it is called is decided elsewhere. Raises `TypeError`."""
        if how.get("setup") or how.get("teardown"):
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

    def measure_memory(self, question: MeasureMemory) -> Weighed:
        """Call the function once; nothing is counted."""
        self.ready(question.mechanism, question.options)()
        return Weighed(values={}, case=question.mechanism)

    def outputs(self, question: Outputs) -> Compared:
        """Keep in a file what the function returns, or compare it with what is kept there."""
        value = self.ready(question.mechanism, question.options)()
        handled = results.keep if question.keeps else results.compare
        return handled(value, question.path, str(self.tree))

    def build(self, question: Build) -> ProcessAnswer:
        """Call the function until its times are steady, for at most the time of the warm-up."""
        self.call = self.ready(question.mechanism, question.options)
        return self.warmed(question.warmup_s)

    def warmed(self, warmup_s: float) -> Warm:
        """Call what is timed until its times are steady; answers how long a call takes."""
        iterate = self.iteration()
        first = sample(iterate, lambda: None, self.watch, 1)
        warm = warm_up(iterate, lambda: None, self.watch, first, warmup_s)
        gc.collect()
        gc.disable()  # a collection would disturb the samples of one process alone
        return Warm(iteration_s=warm[-1].wall_s, wall_s=warm[-1].wall_s)

    def lap(self, question: Lap) -> Lapped:
        """One sample of some calls, without the cost of a clock in between."""
        return Lapped(sample=self.sampled(question.iterations))

    def sampled(self, calls: int) -> Sample:
        """A sample of so many calls."""
        waited = increments(self.waited)
        taken = sample(self.iteration(calls), lambda: None, self.watch, 1)
        waited_s = waited()
        known = None if math.isnan(waited_s) else waited_s
        return taken._replace(iterations=calls, waited_s=known)

    def iteration(self, calls: int = 1) -> Iterate:
        """That many calls of what is timed, in a row."""
        return repeated(self.call, calls)

    def finish(self, question: Finish) -> Finished:
        """The process measures nothing else, since a function may leave anything behind."""
        return Finished(values={}, notes=left_running(end_children()), needs_new_process=True)

    def has(self, question: HasFunction) -> Done:
        """Whether there is such a function; it is not called. Raises `Unmeasured`."""
        self.found(question.mechanism)
        return Done()

    def found(self, name: str) -> Callable[..., Any]:
        """The function of this name. Raises `Unmeasured`."""
        place, _, attribute = name.rpartition(":")
        is_file = place.endswith(".py")
        if is_file and not (self.tree / place).is_file():
            raise Unmeasured("missing", f"there is no file {place}")
        try:
            module = module_of(self.tree / place) if is_file else importlib.import_module(place)
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

    def ready(self, name: str, options: Any) -> Callable[[], Any]:
        """The function with its arguments, what it returns if that can be called, or what it gives
        to the fixture `benchmark`. Raises `Unmeasured`.
        """
        function = self.found(name)
        seed(self.seed)
        benchmark = CalledOnce()
        given: dict[str, Any] = dict(options)
        if "benchmark" in inspect.signature(function).parameters:
            given["benchmark"] = benchmark
        made = function(**given)
        if isinstance(made, Awaitable | AsyncIterator | Generator):
            kind = type(made).__name__
            raise TypeError(f"{name} returns a {kind} that nobody runs; name a function that does")
        if "benchmark" in given and not benchmark.call:
            raise TypeError(f"{name} gives nothing to its fixture benchmark")
        return benchmark.call or (made if callable(made) else partial(function, **given))


def seed(number: int) -> None:
    """Start the random generators that are loaded from this number."""
    for generator, start in SEEDS:
        if generator in sys.modules:
            getattr(sys.modules[generator], start)(number)
