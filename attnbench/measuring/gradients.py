"""Whether a backward pass computes gradients, for the parameters that the output depends on."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from attnbench.measuring.caller import Caller
from attnbench.measuring.comparing import TOLERANCE, differs

UNTRAINED = 0.75  # share of its parameters that may lack a gradient
# A gradient that is a smaller share of the largest is none; the slope of the output along a change
# of all parameters may be a smaller share of what the output changes by, but not than `FAINT`.
NONE = 1e-6
FAINT = 1e-3
SMALL = 1e-3  # change of a token to which only what chooses among codes does not respond


def missing_gradients(caller: Caller) -> list[str]:
    """Signs that its backward pass does not compute gradients."""
    x = caller.new_input()
    states = caller.draws()
    near_x = tuple(each.detach().clone().requires_grad_() for each in x)
    with torch.no_grad():
        for each in near_x:
            each[0].select(-2, 0).mul_(1 + SMALL)
    output = caller.output(x, states)
    near_output = caller.output(near_x, states)
    # the gradients of codes, for which inputs are rounded, are estimates
    rounded = (near_output[0] - output[0]).abs().max() <= TOLERANCE * output.square().mean().sqrt()
    if rounded or differs(caller.output(x, states), output):
        return []
    trained = [p for p in caller.mechanism.parameters() if p.requires_grad]
    before = [p.detach().clone() for p in trained]
    vary(trained)
    response = caller.output(x, states) - output
    steps = [p.detach() - was for p, was in zip(trained, before, strict=True)]
    with torch.no_grad():
        for p, was in zip(trained, before, strict=True):
            p.copy_(was)
    caller.subject.clear()
    caller.restore(states)
    y = caller.call(x)
    responds = differs(output + response, output)
    y.backward(response / response.float().norm().to(y.dtype) if responds else torch.randn_like(y))
    gradientless = parameters_without_gradient(trained)
    if responds and not gradientless and (size := faint_gradients(trained, steps, response)):
        return [size]
    vary(gradientless)
    if len(gradientless) > UNTRAINED * len(trained) and differs(caller.output(x, states), output):
        return [f"gave no gradient to {len(gradientless)} of the {len(trained)} parameters it uses"]
    return []


def parameters_without_gradient(trained: Sequence[nn.Parameter]) -> list[nn.Parameter]:
    """The parameters without a gradient, or with one that is nothing beside the largest."""
    sizes = [
        0.0 if p.grad is None else float(p.grad.float().norm() * (1 + p.detach().float().norm()))
        for p in trained
    ]
    most = max(sizes, default=0.0)
    return [p for p, size in zip(trained, sizes, strict=True) if size <= NONE * most]


def faint_gradients(
    trained: Sequence[nn.Parameter], steps: Sequence[Tensor], response: Tensor
) -> str:
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
