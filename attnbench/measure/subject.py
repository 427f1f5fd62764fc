"""A case as it is measured: a module with its inputs, and the steps of one iteration.

What differs between modes is in `measure/subjects/`, a file for each mode.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from attnbench import modes
from attnbench.attention.card import Card
from attnbench.attention.classifier import Classifier, random_tokens
from attnbench.devices.finding import find
from attnbench.devices.protocol import ValuesAndNotes
from attnbench.measure.drawing import Repeating
from attnbench.records import Case, Level


class Subject:
    """A case built on its device, ready to iterate; the same seed gives the same one.

    In a mode that steps its state is `filled` with random numbers, or left by a prompt.
    This is an iteration of a forward pass alone, without gradients where the mode does not train.
    """

    calls = "forward"  # the method of a mechanism that an iteration calls
    declares = "flops"  # the method that declares its FLOPs
    state: Any = None  # that a prompt left
    optimiser: torch.optim.Optimizer | None = None

    def __init__(self, card: Card, case: Case, seed: int, filled: bool = False) -> None:
        self.case, self.filled, w = case, filled, case.workload
        self.causality = card.causality
        self.mode = modes.find(w.mode)
        config, form = card.configure(dict(case.options)), card.forms[case.form]
        torch.manual_seed(seed)
        self.dtype, self.device = getattr(torch, w.dtype), find(w.device).torch_name
        # a `Classifier`, or at other levels one form of the mechanism
        whole = partial(Classifier, card, case.form) if w.level is Level.MODEL else form
        with Repeating():
            self.module: Any = whole(config, w)
        forms = self.module.modules()
        self.compiles = any(getattr(form, "compiles", False) for form in forms)
        self.module.to(self.device, self.dtype).train(self.mode.trains)
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.mask = self._mask()
        self.inputs = self._inputs()
        self.core = self._core_sizes(card, config) if w.level is Level.CORE else (0, 0)
        self.parameters = [p for p in self.module.parameters() if p.requires_grad]
        self.prepare()

    def prepare(self) -> None:
        """Make what iterations need besides module and inputs."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that an output must have."""
        w, (heads, width) = self.case.workload, self.core
        return {
            Level.MODEL: (w.batch, w.shell.classes if w.shell else 0),
            Level.ATTENTION: (w.batch, w.outputs // w.batch, w.width),
            Level.CORE: (w.batch, heads, w.seq_len, width),
        }[w.level]

    def draw(self, seed: int) -> None:
        """Draw new inputs; a prompt stays."""
        self.generator.manual_seed(seed)
        self.inputs = self._inputs()

    def prefill(self) -> Tensor | None:
        """Pass over the prompt and keep its state; the last output, None without a prompt."""
        return None

    def iteration(self) -> Callable[..., Tensor]:
        """A function that runs one iteration and calls `lap(name)` as each phase ends."""
        further = tuple(self.further())

        def iterate(lap: Callable[[str], None]) -> Tensor:
            with torch.set_grad_enabled(self.mode.trains):
                output = self.forward()
            lap("forward")
            for name, work in further:
                work(output)
                lap(name)
            return plain(output)

        return iterate

    def further(self) -> Iterator[tuple[str, Callable[[Tensor], None]]]:
        """The names of the phases after the forward pass, with what each does to the output."""
        yield from ()

    def forward(self) -> Tensor:
        """The output."""
        call = self.module.attend if self.case.workload.level is Level.CORE else self.module
        return call(*self.inputs, self.mask)

    def clear(self) -> None:
        """Drop the gradients."""
        for tensor in (*self.parameters, *self.inputs):
            tensor.grad = None

    def check(self, output: Tensor) -> str:
        """What is wrong with an output, or nothing."""
        if tuple(output.shape) != self.shape:
            return f"output has shape {list(output.shape)}, not {list(self.shape)}"
        if output.dtype != self.dtype:
            return f"output is {output.dtype}, not {self.dtype}"
        if not output.isfinite().all():
            return "output is not finite"
        return ""

    def state_bytes(self) -> float | None:
        """Bytes of the state that earlier tokens left, or None in modes without one."""
        return None

    def with_state(self, values: dict[str, float]) -> ValuesAndNotes:
        """The memory measurements as they are to be stored, and notes."""
        return values, {}

    @staticmethod
    def sequence(module: Any, x: Tensor) -> Tensor:
        """The output of a form for x [1, N, D], computed as iterations compute."""
        return module(x)

    def _mask(self) -> Tensor | None:
        w = self.case.workload
        if not w.padding:
            return None
        real = max(1, round(w.seq_len * (1 - w.padding)))
        return (torch.arange(w.seq_len, device=self.device) < real).expand(w.batch, -1)

    def _inputs(self) -> tuple[Tensor, ...]:
        w = self.case.workload
        if w.level is Level.MODEL:
            return (random_tokens(w, self.generator),)
        if w.level is Level.ATTENTION:
            return (self.normal(w.batch, w.outputs // w.batch, w.width),)
        shapes = self.module.core_inputs(self.module.config, w)
        return tuple(self.normal(*shape) for shape in shapes)

    def normal(self, *shape: int) -> Tensor:
        """Normally distributed numbers, with a gradient where the mode trains."""
        tensor = torch.empty(shape, device=self.device, dtype=self.dtype)
        return tensor.normal_(generator=self.generator).requires_grad_(self.mode.trains)

    def _core_sizes(self, card: Card, config: Any) -> tuple[int, int]:
        """Heads and head width of a core's output, found by running one token; usually H and d.

        A user's core gives what it was given, and may not run a single token.
        """
        if not card.declared:
            return self.case.workload.heads, self.case.workload.head_width
        w = replace(self.case.workload, batch=1, seq_len=1)
        core: Any = card.forms["eager"](config, w).to(self.device, self.dtype)
        shapes = core.core_inputs(core.config, w)
        inputs = (torch.zeros(shape, device=self.device, dtype=self.dtype) for shape in shapes)
        with torch.no_grad():
            _, heads, _, width = core.attend(*inputs, None).shape
        return heads, width


def plain(output: Any) -> Tensor:
    """An output without its graph.

    Raises `TypeError` if it is not exactly a tensor: a subclass may compute only when it is read.
    """
    if type(output) is not Tensor:
        raise TypeError(f"the output is a {type(output).__name__}, and not exactly a Tensor")
    return output.detach()
