"""What is odd about a mechanism that ran well: signs that it did not do what it was timed for.

Two forward passes are watched, the first one of the run and one on fresh input after its samples.
Of the first only a few numbers are kept, so that what is timed finds memory as it would be.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from attnbench.contract import Attention
from attnbench.measure.subject import Subject
from attnbench.records import Level

SAMPLED = 4096  # numbers of an output that are compared: 16 KiB, and no two differ in all by chance


@dataclass
class Passed:
    """One forward pass: a few numbers of the output of each layer's mechanism, and its oddities."""

    outputs: list[Tensor] = field(default_factory=list)
    odd: dict[str, None] = field(default_factory=dict)


@contextmanager
def watched(subject: Subject, thoroughly: bool = False) -> Iterator[Passed]:
    """Watch the calls of the subject's mechanisms; `thoroughly` looks at whole tensors too."""
    passed = Passed()
    core = subject.case.workload.level is Level.CORE
    modules = [module for module in subject.module.modules() if isinstance(module, Attention)]
    name = "attend" if core else "forward"
    for module in modules[:1] if core else modules:
        # in the instance, where it hides the method of the class until it is deleted
        setattr(module, name, seen(getattr(module, name), passed, thoroughly))
    try:
        yield passed
    finally:
        for module in modules:
            vars(module).pop(name, None)


def seen(call: Callable[..., Any], passed: Passed, thoroughly: bool) -> Callable[..., Any]:
    """The call, with its inputs and output noted."""

    def noted(*given: Any, **named: Any) -> Any:
        inputs = [one for one in given if isinstance(one, Tensor) and one.is_floating_point()]
        before = [one.detach().clone() for one in inputs] if thoroughly else []
        grad = torch.is_grad_enabled()
        output = call(*given, **named)
        if torch.is_grad_enabled() != grad:
            passed.odd["left gradients switched " + ("off" if grad else "on")] = None
        if isinstance(output, Tensor):  # anything else is refused elsewhere
            if output.requires_grad and not grad:
                passed.odd["recorded gradients in inference"] = None
            passed.outputs.append(few(output))
            if thoroughly and any(torch.equal(output, one) for one in before):
                passed.odd["returned its input"] = None
        if not all(torch.equal(was, now) for was, now in zip(before, inputs, strict=False)):
            passed.odd["changed its input in place"] = None
        return output

    return noted


def few(tensor: Tensor) -> Tensor:
    """Copies of some numbers from all over a tensor."""
    count = min(SAMPLED, tensor.numel())
    place = torch.linspace(0, tensor.numel() - 1, count, device=tensor.device, dtype=torch.float64)
    return tensor.detach()[torch.unravel_index(place.long(), tensor.shape)]


def odd(subject: Subject, first: Passed, seed: int) -> str:
    """What is odd, `;` between; runs one forward pass on other inputs than those of the seed."""
    found = dict(first.odd)
    frozen = sum(not parameter.requires_grad for parameter in subject.parameters)
    if frozen:
        found[f"switched the gradients of {frozen} of its parameters off"] = None
    if any(module.training != subject.training for module in subject.module.modules()):
        found["switched between training and evaluation"] = None
    recorded: list[None] = []

    def record(tensor: Tensor) -> Tensor:
        recorded.append(None)
        return tensor

    subject.draw(seed + 1)
    try:
        with (
            watched(subject, thoroughly=True) as fresh,
            torch.no_grad(),
            saved_tensors_hooks(record, lambda tensor: tensor),
        ):
            subject.forward()
    except Exception as error:
        found[f"failed on fresh input with {type(error).__name__}"] = None
        return "; ".join(found)
    found |= fresh.odd
    if recorded and not subject.training:
        found["recorded gradients in inference"] = None
    pairs = zip(first.outputs, fresh.outputs, strict=False)  # backward may have called some again
    if any(torch.equal(one, other) for one, other in pairs):
        found["gave the same output for other input"] = None
    return "; ".join(found)
