"""Odd behaviour of a mechanism that ran: signs that it did not compute what was to be timed.

Two forward passes are watched, the first one of the run and one on other input after its samples.
Of the first only a few numbers are kept, so that the timed iterations find memory unchanged.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from attnbench.attention.contract import Attention
from attnbench.measure.subject import Subject
from attnbench.records import Level

SAMPLED = 4096  # numbers of an output to compare: 16 KiB, and enough not to agree by chance


@dataclass
class Passed:
    """One forward pass: some numbers of each mechanism's output, and what was odd."""

    outputs: list[Tensor] = field(default_factory=list)
    odd: dict[str, None] = field(default_factory=dict)


@contextmanager
def watched(subject: Subject, thoroughly: bool = False) -> Iterator[Passed]:
    """Watch the calls of the subject's mechanisms; `thoroughly` looks at whole tensors too."""
    passed = Passed()
    core = subject.case.workload.level is Level.CORE
    modules = [module for module in subject.module.modules() if isinstance(module, Attention)]
    name = "attend" if core else subject.calls
    for module in modules if name == "forward" else modules[:1]:
        # in the instance, where it hides the class's method until it is deleted
        setattr(module, name, recorded(getattr(module, name), passed, thoroughly))
    try:
        yield passed
    finally:
        for module in modules:
            vars(module).pop(name, None)


def recorded(call: Callable[..., Any], passed: Passed, thoroughly: bool) -> Callable[..., Any]:
    """The call, recording its output and what was odd."""

    def recording(*args: Any, **kwargs: Any) -> Any:
        inputs = [arg for arg in args if isinstance(arg, Tensor) and arg.is_floating_point()]
        before = [tensor.detach().clone() for tensor in inputs] if thoroughly else []
        grad = torch.is_grad_enabled()
        returned = call(*args, **kwargs)
        output = returned[0] if isinstance(returned, tuple) else returned  # a step and its state
        if torch.is_grad_enabled() != grad:
            passed.odd["left gradients switched " + ("off" if grad else "on")] = None
        if isinstance(output, Tensor):  # anything else is refused elsewhere
            if output.requires_grad and not grad:
                passed.odd["recorded gradients in inference"] = None
            passed.outputs.append(some_numbers(output))
            if inputs and output.dtype != inputs[0].dtype:
                passed.odd[f"returned {output.dtype} for {inputs[0].dtype}"] = None
            if thoroughly and any(torch.equal(output, tensor) for tensor in before):
                passed.odd["returned its input"] = None
        if not all(torch.equal(was, now) for was, now in zip(before, inputs, strict=False)):
            passed.odd["changed its input in place"] = None
        return returned

    return recording


def some_numbers(tensor: Tensor) -> Tensor:
    """Copies of some numbers, spread evenly over a tensor."""
    count = min(SAMPLED, tensor.numel())
    index = torch.linspace(0, tensor.numel() - 1, count, device=tensor.device, dtype=torch.float64)
    return tensor.detach()[torch.unravel_index(index.long(), tensor.shape)]


def odd(subject: Subject, first: Passed, seed: int) -> str:
    """Everything odd, separated by `;`. Runs one forward pass on inputs of another seed."""
    signs = dict(first.odd)
    frozen = sum(not parameter.requires_grad for parameter in subject.parameters)
    if frozen:
        signs[f"switched off the gradients of {frozen} of its parameters"] = None
    if any(module.training != subject.mode.trains for module in subject.module.modules()):
        signs["switched between training and evaluation"] = None
    saved: list[None] = []

    def record(tensor: Tensor) -> Tensor:
        saved.append(None)
        return tensor

    subject.draw(seed + 1)
    # without gradients, training would be compiled again
    grad = subject.compiles and subject.mode.trains
    try:
        with (
            watched(subject, thoroughly=True) as fresh,
            torch.set_grad_enabled(grad),
            saved_tensors_hooks(record, lambda tensor: tensor),
        ):
            subject.forward()
    except Exception as error:
        signs[f"failed on other input with {type(error).__name__}"] = None
        return "; ".join(signs)
    signs |= fresh.odd
    if saved and not subject.mode.trains:
        signs["recorded gradients in inference"] = None
    pairs = zip(first.outputs, fresh.outputs, strict=False)  # backward may have called some again
    if any(torch.equal(a, b) for a, b in pairs):
        signs["gave the same output for other input"] = None
    return "; ".join(signs)
