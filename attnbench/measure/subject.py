"""A case as it is measured: a module with its inputs, and the steps of one iteration."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from attnbench.attention.card import Card
from attnbench.attention.classifier import Classifier, random_tokens
from attnbench.devices.finding import find
from attnbench.records import Case, Level, Mode, Workload
from attnbench.verify.flops import counted_flops


class Subject:
    """A case built on its device, ready to iterate; the same seed gives the same one.

    If it `decodes` it is ready after `prefill`: every iteration is then the same step to token N,
    from the state that the N − 1 tokens of the prompt left.

    `capturable`: whether CUDA graphs may capture the step of the optimiser.
    """

    def __init__(self, card: Card, case: Case, seed: int, capturable: bool = False) -> None:
        self.case = case
        w = case.workload
        config, form = card.configure(dict(case.options)), card.forms[case.form]
        torch.manual_seed(seed)
        self.dtype, self.device = getattr(torch, w.dtype), find(w.device).torch_name
        self.training, self.decodes = w.mode is Mode.TRAINING, w.mode is Mode.DECODE
        # a `Classifier`, or at other levels one form of the mechanism
        self.module: Any = (
            Classifier(card, case.form, config, w) if w.level is Level.MODEL else form(config, w)
        )
        # older trees have no form that compiles
        forms = self.module.modules()
        self.compiles = any(getattr(form, "compiles", False) for form in forms)
        self.module.to(self.device, self.dtype).train(self.training)
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.mask = self._mask()
        self.inputs = self._inputs()
        self.prompt = self._normal(w.batch, w.seq_len - 1, w.width) if self.decodes else None
        self.state: Any = None
        self.core = self._core_sizes(card, config) if w.level is Level.CORE else (0, 0)
        self.target = self._target() if self.training else None
        self.parameters = [p for p in self.module.parameters() if p.requires_grad]
        self.optimiser: torch.optim.Adam | None = None
        if self.training and self.parameters:
            self.optimiser = torch.optim.Adam(
                self.parameters, lr=1e-4, fused=True, capturable=capturable
            )
            # Adam keeps two copies of the parameters; they exist before the first iteration
            for parameter in self.parameters:
                parameter.grad = torch.zeros_like(parameter)
            self.step()
            self.clear()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that an output must have."""
        w, (heads, width) = self.case.workload, self.core
        return {
            Level.MODEL: () if self.training else (w.batch, w.shell.classes if w.shell else 0),
            Level.ATTENTION: (w.batch, 1 if self.decodes else w.seq_len, w.width),
            Level.CORE: (w.batch, heads, w.seq_len, width),
        }[w.level]

    def prefill(self) -> Tensor | None:
        """Pass over the prompt and keep its state; the last output, None without a prompt.

        Where nothing is decoded, nothing happens.
        """
        w = self.case.workload
        if not self.decodes:
            return None
        self.state = None  # two states may not fit into memory
        with torch.no_grad():
            self.state = self.module.start(w.batch, w.seq_len)
            if w.seq_len == 1:
                return None
            output, self.state = self.module.prefill(self.prompt, self.state)
        last: Tensor = output[:, -1:].clone()
        return last

    def of_state(self) -> tuple[dict[str, float], dict[str, str]]:
        """Values and notes of the state that the prompt left: bytes of its storages, each once.

        Also the FLOPs of a step if the form does not declare them, and whether the declared number
        of elements is wrong.
        """
        tensors = [leaf for leaf in tree_leaves(self.state) if isinstance(leaf, Tensor)]
        stored = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
        module, w = self.module, self.case.workload
        values = dict[str, float](state_bytes=sum(stored.values()))
        if module.step_flops(module.config, w) is None:
            step = partial(module.step, state=self.state)
            values["flops"] = counted_flops(module, *self.inputs, call=step)
        counted = sum(tensor.numel() for tensor in tensors)
        declared = module.state_elements(module.config, w)
        wrong = f"has a state of {counted:,} elements and declares {declared:,}"
        return values, {"odd": wrong} if counted != declared else {}

    def draw(self, seed: int) -> None:
        """Draw new inputs; a prompt stays."""
        self.generator.manual_seed(seed)
        self.inputs = self._inputs()

    def iteration(self) -> Callable[..., Tensor]:
        """A function that runs one iteration and calls `lap(name)` as each phase ends."""

        def infer(lap: Callable[[str], None]) -> Tensor:
            with torch.no_grad():
                output = self.forward()
            lap("forward")
            return output

        def train(lap: Callable[[str], None]) -> Tensor:
            output = self.forward()
            lap("forward")
            self.backward(output)
            lap("backward")
            self.step()
            lap("step")
            return output.detach()

        return train if self.training else infer

    def forward(self) -> Tensor:
        """The output, in decode of the next token; in training at level `model`, the loss."""
        w = self.case.workload
        if self.decodes:
            output: Tensor = self.module.step(*self.inputs, self.state)[0]
            return output
        if w.level is Level.MODEL and self.training:
            return self.module.loss(*self.inputs, self.mask, self.target)
        call = self.module.attend if w.level is Level.CORE else self.module
        return call(*self.inputs, self.mask)

    def backward(self, output: Tensor) -> None:
        """Compute all gradients."""
        if self.case.workload.level is Level.MODEL:
            output.backward()
            return
        outputs, gradients = [output], [self.target]
        if (extra := self.module.auxiliary_loss()) is not None:
            outputs.append(extra)
            gradients.append(None)
        torch.autograd.backward(outputs, gradients)

    def step(self) -> None:
        """One step of Adam."""
        if self.optimiser:
            self.optimiser.step()

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
            return (self._normal(w.batch, 1 if self.decodes else w.seq_len, w.width),)
        return tuple(self._normal(*shape) for shape in core_inputs(self.module, w))

    def _normal(self, *shape: int) -> Tensor:
        tensor = torch.empty(shape, device=self.device, dtype=self.dtype)
        return tensor.normal_(generator=self.generator).requires_grad_(self.training)

    def _target(self) -> Tensor:
        """Labels [B] at level `model`, otherwise a fixed gradient of the output."""
        w = self.case.workload
        if w.level is not Level.MODEL:
            return self._normal(*self.shape).requires_grad_(False)
        assert w.shell is not None
        sizes, random = (w.batch,), self.generator
        return torch.randint(w.shell.classes, sizes, generator=random, device=self.device)

    def _core_sizes(self, card: Card, config: Any) -> tuple[int, int]:
        """Heads and head width of a core's output, seen on one token; usually H and d."""
        w = replace(self.case.workload, batch=1, seq_len=1)
        core: Any = card.forms["eager"](config, w).to(self.device, self.dtype)
        shapes = core_inputs(core, w)
        inputs = (torch.zeros(shape, device=self.device, dtype=self.dtype) for shape in shapes)
        with torch.no_grad():
            _, heads, _, width = core.attend(*inputs, None).shape
        return heads, width


def core_inputs(core: Any, w: Workload) -> tuple[tuple[int, ...], ...]:
    """Shapes of what a core takes; cores of older trees take q, k and v."""
    if not hasattr(core, "core_inputs"):
        return ((w.batch, w.heads, w.seq_len, w.head_width),) * 3
    shapes: tuple[tuple[int, ...], ...] = core.core_inputs(core.config, w)
    return shapes
