"""One example of a mechanism on small sizes, for the checks of the contract."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from attnbench.attention.card import Card
from attnbench.attention.contract import Attention, CoreAttention
from attnbench.devices import find
from attnbench.records import Causality, Level, Workload

LAZY = (UninitializedParameter, UninitializedBuffer)


class NotApplicable(Exception):
    """The form refuses a workload that a check needs, for the reason in its text."""


@dataclass(frozen=True)
class Trial:
    """One example of a mechanism in one form, full or causal, on a device, with these sizes."""

    card: Card
    config: Any
    form: str
    causal: bool
    device: str = "cpu"
    width: int = 16
    heads: int = 4

    def workload(self, seq_len: int, batch: int = 2) -> Workload:
        w = workload(seq_len, batch, self.causal)
        w = replace(w, device=self.device, width=self.width, heads=self.heads)
        return self.config.sized(w)

    def refusal(self, w: Workload) -> str | None:
        """Why the form cannot run the workload here, or None."""
        return self.card.refusal(self.form, self.config, w)

    def allowed(self, dtype: torch.dtype) -> float:
        """The card's tolerance for a number type."""
        return getattr(self.card.tolerance, str(dtype).removeprefix("torch."))

    def start(self, w: Workload, form: str) -> Attention:
        """A form's module with repeatable parameters, as they start out.

        Raises `NotApplicable` where the form refuses the workload.
        """
        if reason := self.card.refusal(form, self.config, w):
            raise NotApplicable(reason)
        seeded(0)
        module = self.card.forms[form](self.config, w)
        if any(isinstance(each, LAZY) for each in chain(module.parameters(), module.buffers())):
            with torch.no_grad():  # which gives them their sizes
                module(torch.randn(1, w.seq_len, w.width), None)
        return module

    def build(
        self, w: Workload, dtype: torch.dtype = torch.float64, form: str | None = None
    ) -> Attention:
        """A form's module with repeatable parameters, none of them zero, as some start out.

        They are the same in every number type, since bfloat16 represents all of them.
        """
        module = self.start(w, form or self.form).double()
        for parameter in module.parameters():
            if parameter.dim() == 1 or not parameter.any():
                nn.init.normal_(parameter, std=0.1)
        return module.bfloat16().to(find(w.device).torch_name, dtype).eval()


def workload(seq_len: int, batch: int, causal: bool) -> Workload:
    return Workload(
        batch=batch,
        seq_len=seq_len,
        width=16,
        heads=4,
        level=Level.ATTENTION,
        dtype="float64",
        causal=causal,
    )


def in_dtype(w: Workload, dtype: torch.dtype) -> Workload:
    """The workload in a number type."""
    return replace(w, dtype=str(dtype).removeprefix("torch."))


def causal_values(causality: Causality) -> tuple[bool, ...]:
    """The values of `causal` to check: False, True or both."""
    return {Causality.ALWAYS: (True,), Causality.OPTIONAL: (False, True)}.get(causality, (False,))


def trials(card: Card, compiles: bool = False) -> Iterator[tuple[str, Trial]]:
    """Every example, form and causality that runs here, with a label.

    Forms that torch compiles are separate: each check of one takes minutes.
    """
    for index, config in enumerate(card.examples):
        for causal in causal_values(card.causality):
            for form in (name for name in card.own_forms if card.forms[name].compiles == compiles):
                trial = Trial(card, config, form, causal)
                if card.refusal(form, config, trial.workload(17)) is None:
                    yield f"{index}-{form}{'-causal' if causal else ''}", trial


def tokens(w: Workload, seed: int = 1, dtype: torch.dtype = torch.float64) -> Tensor:
    """Normal values [B, N, D], the same in every type, since bfloat16 represents all of them."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(w.batch, w.seq_len, w.width, generator=generator, dtype=torch.float64)
    return x.bfloat16().to(find(w.device).torch_name, dtype)


def core_inputs(core: CoreAttention, w: Workload) -> list[Tensor]:
    generator = torch.Generator().manual_seed(4)
    shapes = core.core_inputs(core.config, w)
    device = find(w.device).torch_name
    drawn = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return [tensor.to(device) for tensor in drawn]


def some_padding(w: Workload) -> Tensor:
    """A mask [B, N]: sequence 0 is all real; of the others, the last third is padding."""
    mask = torch.ones(w.batch, w.seq_len, dtype=torch.bool)
    mask[1:, w.seq_len - w.seq_len // 3 :] = False
    return mask.to(find(w.device).torch_name)


def masks(w: Workload) -> Tensor:
    """A mask [B, N]: of every three sequences, one is all real, one ends and one begins with
    padding; a sequence that is alone ends with it."""
    mask = some_padding(w)
    third = w.seq_len // 3
    if w.batch == 1:
        mask[:, w.seq_len - third :] = False
        return mask
    mask[2::3] = True
    mask[2::3, :third] = False
    mask[::3] = True
    return mask


def same_draws(call: Any, *inputs: Tensor | None) -> Tensor:
    """The output, always with the same random draws."""
    seeded(7)
    return call(*inputs)


def seeded(number: int) -> None:
    """Seed the draws of the CPU and of GPUs.

    `torch.manual_seed` keeps a traceback for each kind of device that is not there.
    """
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(number)


def without_gradient(trial: Trial) -> list[str]:
    """The names of x and the parameters that no gradient reaches, or only zeros."""
    # a user's module may use a parameter only from one chunk to the next
    w = trial.workload(40 if trial.card.declared else 320)
    module = trial.build(w).train()
    x = tokens(w).requires_grad_()
    loss = (same_draws(module, x) * tokens(w, seed=3)).sum()
    if (extra := module.auxiliary_loss()) is not None:
        loss = loss + extra
    loss.backward()
    named = [("x", x.grad), *((label, p.grad) for label, p in module.named_parameters())]
    for label, gradient in named:
        finite = gradient is None or gradient.isfinite().all()
        assert finite, f"the gradient of {label} is not finite"
    return [label for label, gradient in named if gradient is None or not gradient.any()]
