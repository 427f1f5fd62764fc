"""Whether a backward pass computes gradients, for the parameters that the output depends on."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from attnbench.measuring.called import Called
from attnbench.measuring.comparing import TOLERANCE, differs

UNTRAINED = 0.75  # share of its parameters that may lack a gradient
# A gradient that is a smaller share of the largest is none; the slope of the output along a change
# of all parameters may be a smaller share of what the output changes by, but not than `FAINT`.
NONE = 1e-6
FAINT = 1e-3
SMALL = 1e-3  # change of a token to which only what chooses among codes does not respond


def missing_gradients(called: Called) -> list[str]:
    """Signs that its backward pass does not compute gradients."""
    x = called.fresh()
    states = called.draws()
    near = tuple(each.detach().clone().requires_grad_() for each in x)
    with torch.no_grad():
        for each in near:
            each[0].select(-2, 0).mul_(1 + SMALL)
    usual = called.output(x, states)
    changed = called.output(near, states)
    # the gradients of codes, for which inputs are rounded, are estimates
    rounded = (changed[0] - usual[0]).abs().max() <= TOLERANCE * usual.square().mean().sqrt()
    if rounded or differs(called.output(x, states), usual):
        return []
    trained = [p for p in called.mechanism.parameters() if p.requires_grad]
    before = [p.detach().clone() for p in trained]
    vary(trained)
    response = called.output(x, states) - usual
    steps = [p.detach() - was for p, was in zip(trained, before, strict=True)]
    with torch.no_grad():
        for p, was in zip(trained, before, strict=True):
            p.copy_(was)
    called.subject.clear()
    called.restore(states)
    y = called.call(x)
    responds = differs(usual + response, usual)
    y.backward(response / response.float().norm().to(y.dtype) if responds else torch.randn_like(y))
    missing = without_gradient(trained)
    if responds and not missing and (size := faint(trained, steps, response)):
        return [size]
    vary(missing)
    if len(missing) > UNTRAINED * len(trained) and differs(called.output(x, states), usual):
        return [f"gave no gradient to {len(missing)} of the {len(trained)} parameters it uses"]
    return []


def without_gradient(trained: Sequence[nn.Parameter]) -> list[nn.Parameter]:
    """The parameters without a gradient, or with one that is nothing beside the largest."""
    sizes = [
        0.0 if p.grad is None else float(p.grad.float().norm() * (1 + p.detach().float().norm()))
        for p in trained
    ]
    most = max(sizes, default=0.0)
    return [p for p, size in zip(trained, sizes, strict=True) if size <= NONE * most]


def faint(trained: Sequence[nn.Parameter], steps: Sequence[Tensor], response: Tensor) -> str:
    """A sign that gradients are far smaller than what the output changes by along these steps."""
    pairs = zip(trained, steps, strict=True)
    slope = sum(float((p.grad.double() * s.double()).sum()) for p, s in pairs if p.grad is not None)
    size = float(response.double().norm())
    if abs(slope) > FAINT * size:
        return ""
    return f"gave gradients that are {abs(slope) / size:.0e} of what its output changes by"


def vary(parameters: Iterable[nn.Parameter]) -> None:
    """Change all numbers a little; they keep their signs, and zeros become positive."""
    with torch.no_grad():
        for p in parameters:
            if p.is_floating_point():
                noise = torch.rand_like(p)
                p.copy_(torch.where(p == 0, 0.1 * noise, p * (0.9 + 0.2 * noise)))
