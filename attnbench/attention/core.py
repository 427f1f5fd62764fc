"""The innermost part of a form, by the names of its tensors: what a kernel for it computes.

    a recurrence   o of its rule over tokens, with no state before them: q, k, v, g, beta, …
    another core   o of `attend`: q, k, v, …
    no core        y of the whole layer: x

Tensors are [B, H, N, d], and [B, H, N] where a head has one number for each token. Those of a rule
are as the rule reads them: normalised and scaled, with logs of decays g and step sizes beta.
"""

from collections.abc import Mapping
from inspect import Parameter, signature
from typing import Any

import torch
from torch import Tensor

from attnbench.attention.contract import Attention, CoreAttention
from attnbench.attention.primitives import widen

LAYER = ("x",)
AXES = ("bhnd", "bnhd")  # of what a kernel takes


def tensor_names(eager: type[Attention]) -> tuple[str, ...]:
    """The names of what the core of a mechanism's form `eager` takes; none if they have none."""
    if (rule := getattr(eager, "rule", None)) is not None:
        return (*signature(rule).parameters,)[1:-1]  # between the state and the length of a chunk
    if not issubclass(eager, CoreAttention):
        return ()
    taken = [*signature(eager.attend).parameters.values()][1:-1]  # between self and the mask
    named = all(each.kind is Parameter.POSITIONAL_OR_KEYWORD for each in taken)
    return tuple(each.name for each in taken) if named else ()


def computed(module: Any, tensors: Mapping[str, Tensor]) -> Tensor:
    """What a form computes of tensors with these names, in the number type of the last."""
    if (own := getattr(module, "claimed_core", None)) is not None:
        output: Tensor = own(tensors)
    elif tuple(tensors) == LAYER:
        output = module(*tensors.values())
    elif getattr(module, "rule", None) is None:
        output = module.attend(*tensors.values(), None)
    else:
        wide = {name: widen(tensor) for name, tensor in tensors.items()}
        q = wide["q"]
        S = module.zero_state(len(q), q)
        output = module.rule(S, *wide.values(), module.chunk(module.config, q.shape[-1]))[0]
        output = output.to(tensors["v"].dtype)
    return output


def usual(eager: Any, names: tuple[str, ...], inputs: list[Tensor]) -> dict[str, Tensor]:
    """The tensors that reach the core of the form `eager` from these `core_inputs`, or x."""
    if (rule := getattr(eager, "rule", None)) is None or names == LAYER:
        return dict(zip(names, inputs, strict=True))
    seen: list[Tensor] = []

    def recorded(S: Tensor, *taken: Any) -> tuple[Tensor, Tensor]:
        seen.extend(taken[:-1])
        result: tuple[Tensor, Tensor] = rule(S, *taken)
        return result

    eager.rule = recorded
    try:
        with torch.no_grad():
            eager.attend(*inputs, None)
    finally:
        del eager.rule
    return dict(zip(names, (tensor.detach() for tensor in seen), strict=True))


def by_head(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a rule in full: each head has its own, and each token."""
    B, H, N = tensors["v"].shape[:3]
    full = {}
    for name, tensor in tensors.items():
        if 1 < tensor.shape[1] < H:
            tensor = tensor.repeat_interleave(H // tensor.shape[1], 1)
        full[name] = tensor.expand(B, H, N, *tensor.shape[3:])
    return full
