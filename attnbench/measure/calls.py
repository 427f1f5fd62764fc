"""One measuring process for functions without arguments; it loads torch only if they do."""

import gc
import importlib
import math
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

from attnbench.catalogue.registry import module_of
from attnbench.devices.finding import find
from attnbench.devices.timing import HostStopwatch, increments, repeated, sample, warm_up
from attnbench.measure import allocator
from attnbench.measure.server import described, end_children
from attnbench.records import Clock
from attnbench.run.process import Answer, left_running

# the random generators that functions commonly use
SEEDS = (("random", "seed"), ("numpy.random", "seed"), ("torch", "manual_seed"))


class Missing(Exception):
    """The tree has no such function."""


class Worker:
    """Serves one source tree; a `mechanism` is `package.module:function` or `file.py:function`."""

    def __init__(self, tree: str | None, seed: int, **_: Any) -> None:
        self.tree, self.seed = Path(tree or ".").resolve(), seed
        self.waited = find("cpu").meter().waited
        self.watch = HostStopwatch(counts=Clock.CPU)
        allocator.keep_pages()

    def answer(self, do: str, **asked: Any) -> Answer:
        """The result of the method `do`; an exception in the function becomes an outcome."""
        try:
            return {"outcome": "ok", **getattr(self, do)(**asked)}
        except Missing as error:
            return {"outcome": "missing", "reason": str(error)}
        except (Exception, SystemExit) as error:
            return {"outcome": "failed", "reason": described(error)}

    def measure_memory(self, mechanism: str, **_: Any) -> Answer:
        """Call the function once; nothing is counted."""
        self.ready(mechanism)()
        return {"values": {}, "form": "", "case": mechanism, "needs_new_process": True}

    def build(self, mechanism: str, warmup_s: float = 0.0, **_: Any) -> Answer:
        """Call the function until its times are steady, for at most `warmup_s` of wall time."""
        self.call = self.ready(mechanism)
        iterate = repeated(self.call)
        first = sample(iterate, lambda: None, self.watch, 1)
        warm = warm_up(iterate, lambda: None, self.watch, first, warmup_s)
        gc.collect()
        gc.disable()  # a collection would disturb the samples of one process alone
        return {"form": "", "iteration_s": warm[-1].wall_s, "wall_s": warm[-1].wall_s}

    def lap(self, iterations: int, **_: Any) -> Answer:
        """One sample of that many calls, without the cost of a clock in between."""
        waited = increments(self.waited)
        taken = sample(repeated(self.call, iterations), lambda: None, self.watch, 1)
        waited_s = waited()
        known = None if math.isnan(waited_s) else waited_s
        return {"sample": taken._replace(iterations=iterations, waited_s=known)}

    def finish(self, **_: Any) -> Answer:
        """The process measures nothing else, since a function may leave anything behind."""
        return {"values": {}, "notes": left_running(end_children()), "needs_new_process": True}

    def ready(self, name: str) -> Callable[[], Any]:
        """The function, or what it returns if that is callable. Raises `Missing`."""
        place, _, attribute = name.rpartition(":")
        is_file = place.endswith(".py")
        if is_file and not (self.tree / place).is_file():
            raise Missing(f"there is no file {place}")
        try:
            module = module_of(self.tree / place) if is_file else importlib.import_module(place)
        except ModuleNotFoundError as error:
            if not is_file and error.name and f"{place}.".startswith(f"{error.name}."):
                raise Missing(f"there is no module {error.name}") from error
            raise
        file = Path(module.__file__ or "/").resolve()
        if not file.is_relative_to(self.tree):
            raise Missing(f"{place} comes from {file}, which is not in this repository")
        if not hasattr(module, attribute):
            raise Missing(f"{place} has no {attribute}")
        for generator, start in SEEDS:
            if generator in sys.modules:
                getattr(sys.modules[generator], start)(self.seed)
        function: Callable[[], Any] = getattr(module, attribute)
        made = function()
        if isinstance(made, Awaitable | AsyncIterator | Generator):
            kind = type(made).__name__
            raise TypeError(f"{name} returns a {kind} that nobody runs; name a function that does")
        return made if callable(made) else function
