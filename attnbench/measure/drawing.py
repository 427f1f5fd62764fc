"""Random numbers for large tensors: drawing all of them would take longer than what is timed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

DRAWN = 1 << 20  # numbers of a tensor that are drawn; the rest repeats them
DRAWS = frozenset({torch.ops.aten.normal_.default, torch.ops.aten.uniform_.default})


def draw(tensor: Tensor, fill: Callable[[Tensor], object]) -> None:
    """Let `fill` draw the first numbers of a tensor, which the others repeat."""
    first, *others = tensor.flatten().split(DRAWN) if tensor.is_contiguous() else (tensor,)
    fill(first)
    for other in others:
        other.copy_(first[: len(other)])


class Repeating(TorchDispatchMode):
    """Within it, initial parameters are drawn by `draw`."""

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func not in DRAWS or args[0].numel() <= DRAWN:
            return func(*args, **(kwargs or {}))
        draw(args[0], lambda first: func(first, *args[1:], **(kwargs or {})))
        return args[0]
