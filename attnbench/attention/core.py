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
from attnbench.attention.kernels.primitives import widen

LAYER = ("x",)
# of what a kernel takes
AXES = ("bhnd", "bnhd")
CAUSAL = ("causal", "is_causal")


def tensor_names(eager: type[Attention]) -> tuple[str, ...]:
    """The names of what the core of a mechanism's form `eager` takes; none if they have none."""
    if (rule := getattr(eager, "rule", None)) is not None:
        return (*signature(rule).parameters,)[1:-1]  # between the state and the length of a chunk
    if not issubclass(eager, CoreAttention):
        return ()
    taken = [*signature(eager.attend).parameters.values()][1:-1]  # between self and the mask
    named = all(each.kind is Parameter.POSITIONAL_OR_KEYWORD for each in taken)
    return tuple(each.name for each in taken) if named else ()


def computed(module: Any, tensors: Mapping[str, Tensor], mask: Tensor | None = None) -> Tensor:
    """What a form computes of tensors with these names, in the number type of the last.

    The tensors of a rule are masked already, so that it takes no `mask` [B, N].
    """
    given = [*tensors.values()]
    if tuple(tensors) == LAYER:
        output: Tensor = module(*given, mask)
    elif not hasattr(module, "rule"):
        output = module.attend(*given, mask)
    else:
        wide = {name: widen(tensor) for name, tensor in tensors.items()}
        q = wide["q"]
        S = module.zero_state(len(q), q)
        chunk = module.chunk(module.config, q.shape[-1])
        output = module.rule(S, *wide.values(), chunk)[0].to(given[-1].dtype)
    return output


def usual(module: Any, names: tuple[str, ...], inputs: list[Tensor]) -> dict[str, Tensor]:
    """The tensors that reach the core of a form from these `core_inputs`, or x."""
    if names == LAYER or not hasattr(module, "rule"):
        return dict(zip(names, inputs, strict=True))
    seen: list[Tensor] = []
    rule = module.rule

    def recorded(S: Tensor, *taken: Any) -> Any:
        seen.extend(taken[:-1])
        return rule(S, *taken)

    module.rule = recorded
    with torch.no_grad():
        module.attend(*inputs, None)
    del module.rule
    return dict(zip(names, seen, strict=True))
