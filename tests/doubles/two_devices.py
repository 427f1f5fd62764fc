"""Two devices on a machine with one: tensors of the host, and others that may not meet them.

A tensor is on the second device if it was made there, as a function's `device` says, or from such
tensors. Copies between the two are not told from copies within one, so `cpu()` leads to no host.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# what takes tensors of both: copies from one to the other, and indices on the host
BOTH = ("copy", "aten.index.", "index_put")


class Named(TorchFunctionMode):
    """Knows whether the function that runs was told a device."""

    def __init__(self) -> None:
        super().__init__()
        self.device = False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        outer = self.device
        told = (*args[1:], *(kwargs or {}).values())
        self.device = outer or any(isinstance(x, torch.device | str) for x in told)
        try:
            out = func(*args, **(kwargs or {}))
            # here both devices are one, to which nothing need be copied
            return out.clone() if func == Tensor.to and self.device and out is args[0] else out
        finally:
            self.device = outer


class Apart(TorchDispatchMode):
    """Raises where an operator takes tensors of both devices, as torch does."""

    def __init__(self, named: Named) -> None:
        super().__init__()
        self.named = named
        self.there: WeakSet[Any] = WeakSet()

    def put(self, *tensors: Tensor) -> None:
        """Let tensors be on the second device."""
        self.there.update(x.untyped_storage() for x in tensors)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        given = [x for x in tree_leaves((args, kwargs or {})) if isinstance(x, Tensor)]
        there = [x for x in given if x.untyped_storage() in self.there]
        here = [x for x in given if x.dim() and x.untyped_storage() not in self.there]
        if there and here and not any(name in str(func) for name in BOTH):
            raise RuntimeError(f"{func}: expected all tensors to be on the same device")
        out = func(*args, **(kwargs or {}))
        if there or self.named.device:
            self.put(*(x for x in tree_leaves(out) if isinstance(x, Tensor)))
        return out


@contextmanager
def two_devices() -> Iterator[None]:
    """Within the block what is made with a `device` stays apart from what is not."""
    named = Named()
    with named, Apart(named):
        yield
