"""Operators and bytes moved in one iteration, counted below autograd; deterministic."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from attnbench.records.notes import Note

# torch runs compiled code as written while a dispatch mode is active
FUSED = "not counted, nor bytes moved: torch.compile fuses operators"


class Counter(TorchDispatchMode):
    """Counts every operator that is not a view, and the bytes of its operands and results.

    A tensor expanded over a dimension counts once along it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operators = 0
        self.moved_bytes = 0
        self.types: set[torch.dtype] = set()  # floating-point types of results

    @property
    def values(self) -> dict[str, float]:
        """The counts, under keys of `records.metrics.TABLE`."""
        return {"operators": self.operators, "moved_bytes": self.moved_bytes}

    @property
    def notes(self) -> dict[str, str]:
        """`number_types`: those in which operators gave their results, for `Run.notes`."""
        names = sorted(str(dtype).removeprefix("torch.") for dtype in self.types)
        return {Note.NUMBER_TYPES: ", ".join(names)} if names else {}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if not is_view(func, args, out):
            self.operators += 1
            results = [t for t in tree_leaves(out) if isinstance(t, Tensor)]
            operands = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
            self.moved_bytes += sum(map(touched_bytes, operands + results))
            self.types |= {t.dtype for t in results if t.is_floating_point()}
        return out


def is_view(func: Any, args: tuple[Any, ...], out: Any) -> bool:
    """Whether the result is only a view of an operand's memory."""
    both = [t for t in (*args[:1], out) if isinstance(t, Tensor) and t.layout is torch.strided]
    if func._schema.is_mutable or len(both) < 2 or both[0].numel() == 0:
        return False
    first, other = (tensor.untyped_storage().data_ptr() for tensor in both)
    return first == other


def touched_bytes(tensor: Tensor) -> int:
    """Bytes that reading the tensor once touches."""
    if tensor.layout is not torch.strided:
        return 0
    count = tensor.itemsize
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= size if stride else min(size, 1)
    return count
