"""Activations of feed-forwards, by the names that configurations of models have for them."""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from torch import Tensor
from torch.nn import functional

TANH = partial(functional.gelu, approximate="tanh")
CLAMPED = "clamped"  # of gpt-oss, with its own way to gate
LIMIT = 7.0
SLOPE = 1.702


def squared(x: Tensor) -> Tensor:
    """max(x, 0)²."""
    return functional.relu(x).square()


def quick(x: Tensor) -> Tensor:
    """x σ(1.702 x)."""
    return x * (SLOPE * x).sigmoid()


ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = MappingProxyType(
    {
        "silu": functional.silu,
        "gelu": functional.gelu,
        "gelu_tanh": TANH,
        "quick_gelu": quick,
        "relu": functional.relu,
        "relu2": squared,
        CLAMPED: quick,
    }
)


def gated(activation: str, gate: Tensor, up: Tensor) -> Tensor:
    """φ(gate) ⊙ up; clamped: both within 7, and up + 1 in place of up."""
    if activation == CLAMPED:
        gate = gate.clamp(max=LIMIT)
        up = up.clamp(-LIMIT, LIMIT) + 1
    return ACTIVATIONS[activation](gate) * up
