"""Forward FLOPs counted by torch, including products that its counter omits."""

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

aten = torch.ops.aten


def counted_flops(
    module: nn.Module, *inputs: Tensor | None, call: Callable[..., object] | None = None
) -> int:
    """Forward FLOPs of the module on these inputs, matrix products only; nothing is compiled.

    `call` is what the inputs are given to: a method of the module in place of the module itself.
    """
    mapping = {op: (lambda *a, f=f, out_shape=None, **k: f(*a)) for op, f in UNCOUNTED}
    # torch's counter fails where a submodule reads a view of what needs a gradient
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    module.requires_grad_(False)
    try:
        with (
            torch.compiler.set_stance("force_eager"),
            torch.no_grad(),
            FlopCounterMode(display=False, custom_mapping=mapping) as counter,
        ):
            (call or module)(*(x if x is None else x.detach() for x in inputs))
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)
    return int(counter.get_total_flops())


def attention(q: tuple[int, ...], k: tuple[int, ...], *_: Any) -> int:
    """FLOPs of q kᵀ and A v on shapes [B, H, N, d]."""
    B, H, N, d = q
    return 2 * (2 * B * H * N * k[2] * d)


def triangular_solution(a: tuple[int, ...], b: tuple[int, ...], *_: Any) -> int:
    """FLOPs of A⁻¹ B for triangular A [..., C, C] and B [..., C, d]: C² d each."""
    return prod(b) * a[-1]


# operators that torch's counter omits, with functions from operand shapes to FLOPs
UNCOUNTED = (
    (aten._scaled_dot_product_flash_attention_for_cpu, attention),
    (aten._scaled_dot_product_fused_attention_overrideable, attention),
    (aten.linalg_solve_triangular, triangular_solution),
    (aten.mv, lambda a, b, *_: 2 * a[0] * a[1]),
    (aten.dot, lambda a, b, *_: 2 * a[0]),
)
