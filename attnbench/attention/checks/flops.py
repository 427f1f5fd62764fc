"""Forward FLOPs counted by torch, including products that its counter omits."""

from collections.abc import Callable
from functools import partial
from math import prod
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

aten = torch.ops.aten


def counted_flops(
    module: nn.Module,
    *inputs: Tensor | None,
    call: Callable[..., object] | None = None,
    skipping: bool = False,
) -> int:
    """Forward FLOPs of the module on these inputs, matrix products only; nothing is compiled.

    `call` is what the inputs are given to: a method of the module in place of the module itself.
    `skipping`: fused kernels compute no products with later keys, where they are causal.
    """
    counted = {**UNCOUNTED, FUSED: partial(attention, skipping=skipping)}
    mapping = {op: (lambda *a, f=f, out_shape=None, **k: f(*a)) for op, f in counted.items()}
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


def attention(
    q: tuple[int, ...],
    k: tuple[int, ...],
    v: tuple[int, ...],
    dropout: float = 0.0,
    causal: bool = False,
    *_: Any,
    skipping: bool = False,
) -> int:
    """FLOPs of q kᵀ and A v.

    q, k, v: shapes [B, H, N, d], without the tensors.
    dropout: does not count.
    causal: whether a query meets only the keys up to its own place.
    skipping: whether the kernel leaves out what causality hides.
    """
    B, H, N, d = q
    return 2 * (2 * B * H * d) * (N * (N + 1) // 2 if causal and skipping else N * k[2])


def triangular_solution(a: tuple[int, ...], b: tuple[int, ...], *_: Any) -> int:
    """FLOPs of A⁻¹ B for triangular A [..., C, C] and B [..., C, d]: C² d each."""
    return prod(b) * a[-1]


def weighted_rows(table: tuple[int, ...], rows: tuple[int, ...], *_: Any) -> int:
    """FLOPs of sums of rows [n] of a table [m, d], each with a weight."""
    return 2 * prod(rows) * table[1]


# operators that torch's counter omits, with functions from operand shapes to FLOPs
FUSED = aten._scaled_dot_product_flash_attention_for_cpu
UNCOUNTED = MappingProxyType({
    aten._scaled_dot_product_fused_attention_overrideable: lambda q, k, *_: attention(q, k, k),
    aten.linalg_solve_triangular: triangular_solution,
    aten.mv: lambda a, b, *_: 2 * a[0] * a[1],
    aten.dot: lambda a, b, *_: 2 * a[0],
    aten._embedding_bag: weighted_rows,
    aten._embedding_bag_forward_only: weighted_rows,
})  # fmt: skip
