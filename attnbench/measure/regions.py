"""A measuring process that also divides the time of its laps among the parts of a module.

One rule finds the parts of every mechanism. Within an attention, torch's `linear` is the
projections, whoever calls it; torch's convolutions and the method `convolve` are the convolution;
the methods `attend`, `attend_next` and `scan` are the core. The rest of such an attention is gates,
norms and copies; without such a core, the rest is the core. What surrounds attentions is the shell.
In a backward pass, hooks on tensors handed from part to part tell which part is running. Compiled
code has no parts.
"""

import math
from collections import Counter as Counts
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from statistics import median
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._pytree import tree_leaves

from attnbench.attention.card import Card
from attnbench.attention.contract import Attention
from attnbench.devices.counting import Counter
from attnbench.devices.protocol import Iterate, Lap, Stopwatch
from attnbench.devices.timing import sample
from attnbench.measure import worker
from attnbench.measure.subject import Subject
from attnbench.records import Case, Level, Region
from attnbench.run.workers import Answer

FUNCTIONS = MappingProxyType(
    {"linear": Region.PROJECTIONS, "conv1d": Region.CONVOLUTION, "conv2d": Region.CONVOLUTION}
)
METHODS = MappingProxyType(
    {"convolve": Region.CONVOLUTION} | dict.fromkeys(("attend", "attend_next", "scan"), Region.CORE)
)
PAIRS, TIMES = 100, 15  # pairs of operators on single numbers, in a chain that is timed so often


class Worker(worker.Worker):
    """Takes every lap twice, once of the module as it is and once with marks between its parts."""

    regions: "Regions"
    taken: list[Mapping[str, float]]  # by region, seconds of an iteration of each marked lap

    def build(self, marked: bool = True, **asked: Any) -> Answer:  # type: ignore[override]
        """Build as usual; laps are taken twice only if `marked`."""
        self.marked = marked
        return super().build(**asked)

    def subject(self, card: Card, case: Case, **how: bool) -> Subject:
        subject = super().subject(card, case, **how)
        self.regions, self.taken, iteration = Regions(subject), [], subject.iteration
        subject.iteration = lambda: self.regions.timed(iteration())  # type: ignore[method-assign]
        return subject

    def lap(self, iterations: int, rehearse: bool = False, left_s: float = math.inf) -> Answer:
        """The lap of the module as it is; it comes first in every other call."""
        answers: dict[bool, Answer] = {}
        if not self.marked:
            return super().lap(iterations, rehearse, left_s)
        for marked in (False, True) if len(self.taken) % 2 == 0 else (True, False):
            with self.regions.placed() if marked else nullcontext():
                # only one of them is retaken: the parent bounds what this process may use
                left_now_s = 0.0 if marked else left_s
                answers[marked] = super().lap(iterations, rehearse, left_now_s)
            if marked:
                seconds = self.regions.named(self.built.watch.laps)
        self.taken.append({region: s / iterations for region, s in seconds.items()})
        return answers[False]

    def finish(self, left_s: float = math.inf) -> Answer:
        """As usual, plus the times of all laps and the operators of an iteration, by region.

        `launch_s` is what one operator costs alone; `lumped`: some attention has no separate core.
        """
        if not self.marked:
            return super().finish(left_s)
        built, regions, counts = self.built, self.regions, Counts[str]()
        built.clear()
        with regions.placed(), Counter() as counter:

            def lap(region: str) -> None:
                counts[region] += counter.operators - counts.total()

            built.iterate(lap)
        more = {
            "regions": self.taken,
            "operators": {} if built.subject.compiles else regions.named(counts),
            "launch_s": launch_s(built.watch),
            "lumped": not regions.split.issuperset(regions.own),
        }
        return {**super().finish(left_s), **more}


class Regions:
    """Where in its module a subject is `now`: a region, or an attention outside of its regions."""

    def __init__(self, subject: Subject) -> None:
        is_model = subject.case.workload.level is Level.MODEL
        self.outside = str(Region.SHELL if is_model else Region.REST)
        self.now, self.marks = self.outside, False
        self.lap: Lap = silent
        self.split: set[str] = set()  # attentions that have handed over to a core
        attentions = [m for m in subject.module.modules() if isinstance(m, Attention)]
        # a stack of attentions belongs to what surrounds them
        self.own = {f"attention {i}": m for i, m in enumerate(attentions) if m.stacked == (m,)}
        inner, functions = ({}, {}) if subject.compiles else (METHODS, FUNCTIONS)
        places: list[tuple[Any, str, str]] = [(functional, *pair) for pair in functions.items()]
        for own, module in self.own.items():
            methods = {"forward": own, "step": own, **inner}
            places += [(module, name, r) for name, r in methods.items() if hasattr(module, name)]
        self.patches = [
            patch.object(owner, name, self.located(getattr(owner, name), region))
            for owner, name, region in places
        ]

    @contextmanager
    def placed(self) -> Iterator[None]:
        """Within the block, calls are located, and laps are those of regions."""
        with ExitStack() as stack:
            for one in self.patches:
                stack.enter_context(one)
            self.marks = True
            yield
        self.marks = False

    def located(self, call: Callable[..., Any], region: str) -> Callable[..., Any]:
        """The call, as a stay in the region; torch's functions in the shell belong to the shell."""

        def there(*args: Any, **kwargs: Any) -> Any:
            outer = self.now
            if outer == self.outside and region in FUNCTIONS.values():
                return call(*args, **kwargs)
            if region == Region.CORE:
                self.split.add(outer)
            self.hand_over(outer, region, (args, kwargs))
            out = call(*args, **kwargs)
            self.hand_over(region, outer, out)
            return out

        return there

    def hand_over(self, giver: str, taker: str, tensors: Any) -> None:
        """Enter another region; as soon as the tensors have gradients, they lead back."""
        self.enter(taker)
        for tensor in tree_leaves(tensors) if torch.is_grad_enabled() else ():
            # those that have been handed over before lead back to where they were made
            if isinstance(tensor, Tensor) and tensor.grad_fn and not tensor._backward_hooks:
                tensor.register_hook(lambda gradient: self.enter(giver))

    def enter(self, region: str) -> None:
        """End the stay in one region and begin that in another."""
        self.lap(self.now)
        self.now = region

    def timed(self, iterate: Iterate) -> Iterate:
        """The iteration; while marks are placed, with a lap per stay instead of per phase."""

        def by_region(lap: Lap) -> Any:
            def phase(name: str) -> None:
                lap(Region.OPTIMISER if name == "step" else self.now)
                self.now = self.outside

            self.now, self.lap = self.outside, lap
            out = iterate(phase if self.marks else lap)
            self.lap = silent
            return out

        return by_region

    def named(self, found: Mapping[str, float]) -> dict[str, float]:
        """Amounts by region; the rest of an attention is its gates, or its core if it has none."""
        amounts: dict[str, float] = {}
        for region, amount in found.items():
            of_own = Region.GATES if region in self.split else Region.CORE
            name = of_own if region in self.own else region
            amounts[name] = amounts.get(name, 0) + amount
        return amounts


def launch_s(watch: Stopwatch) -> float:
    """Seconds of an operator on single numbers; 0 on a device that computes while others launch."""
    x = torch.ones(1, 1)

    def iterate(lap: Lap) -> None:
        with torch.no_grad():
            for _ in range(PAIRS):
                (x.view(1, 1) * x) @ x
        lap("")

    taken = [sample(iterate, lambda: None, watch, 1) for _ in range(TIMES)]
    return median(s.seconds if s.device_s is None else 0.0 for s in taken) / (2 * PAIRS)


def silent(phase: str) -> None:
    """A lap that nobody times."""
