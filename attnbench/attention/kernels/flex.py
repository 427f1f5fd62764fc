"""Attention within windows by torch's flex_attention, which several mechanisms share.

flex_attention fuses scores, mask and softmax, and visits only the blocks of `BLOCK` queries and
`BLOCK` keys that a block mask lists. The list is made from ranges of tokens when a module is built,
without an N × N mask.

Source: Dong et al., "Flex Attention", 2024, arXiv:2412.05496.
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import cache, reduce
from math import gcd
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from attnbench.attention.contract import Attention, Flops
from attnbench.devices import find
from attnbench.records import Workload

BLOCK = 128  # tokens of a block, torch's default
LEAST_WIDTH = 16  # of a head: the products of Triton take no fewer columns

Range = tuple[Tensor, Tensor]  # first token and stop, for each block of queries: [n] or [H, n]
Allowed = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # by sequence, head, query and key


class Window:
    """The keys that each query may use: those that `allowed` names, by blocks.

    The queries of a block use no key outside of its ranges in `part`; in those of `whole`, each of
    them uses every key.
    """

    def __init__(
        self, N: int, allowed: Allowed, part: Sequence[Range], whole: Sequence[Range] = ()
    ) -> None:
        self.N = N
        self.allowed = allowed
        start = torch.arange(0, N, BLOCK)
        overlaps = [(a[..., None] < start + BLOCK) & (b[..., None] > start) for a, b in part]
        contains = [(a[..., None] <= start) & (b[..., None] >= start + BLOCK) for a, b in whole]
        self.used = reduce(torch.logical_or, overlaps)  # [n, n] or [H, n, n]
        self.full = reduce(torch.logical_or, contains) if whole else torch.zeros_like(self.used)
        if N % BLOCK:  # the last block of queries or keys is not complete
            self.full[..., -1, :] = self.full[..., :, -1] = False

    def flops(self, w: Workload) -> int:
        """q kᵀ and A v of all blocks that are visited."""
        size = (self.N - torch.arange(0, self.N, BLOCK)).clamp(max=BLOCK)
        pairs = int((self.used * size[:, None] * size).sum())
        heads = 1 if self.used.dim() == 3 else w.heads
        return 4 * w.batch * heads * w.head_width * pairs


def block_mask(N: int, allowed: Allowed, part: Tensor, full: Tensor | None = None) -> Any:
    """A `BlockMask` from blocks that are used in part and in full."""
    from torch.nn.attention.flex_attention import BlockMask

    used, order = listed(part)
    count, first = (None, None) if full is None else listed(full)
    return BlockMask.from_kv_blocks(used, order, count, first, BLOCK, allowed, (N, N))


class Fused:
    """Softmax attention within a window by one kernel, compiled anew for each shape.

    Takes q, k, v [B, H, N, d] and a mask [B, N] or None; a query without a key gets 0.
    """

    def __init__(self, window: Window, device: str) -> None:
        used = window.used
        full = window.full
        self.allowed = window.allowed
        self.blocks = block_mask(window.N, self.allowed, used & ~full, full).to(device)
        # padding may hide any key
        self.padded = block_mask(window.N, self.allowed, used).to(device)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        if mask is None:
            return kernel()(q, k, v, block_mask=self.blocks)
        allowed = self.allowed

        def real(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return allowed(b, h, i, j) & mask[b, j]

        blocks = copy(self.padded)
        blocks.mask_mod = real
        return kernel()(q, k, v, block_mask=blocks)


class Form(Attention):
    """A form that attends to all of its `visible` keys, or to some of them, by `fused`.

    A subclass inherits from this class first, then from the form `eager`.
    """

    compiles = True

    def __init__(self, config: Any, workload: Workload) -> None:
        super().__init__(config, workload)
        device = find(workload.device).torch_name
        self.fused = Fused(self.visible(config, workload), device)

    @staticmethod
    def visible(config: Any, w: Workload) -> Window:
        """The keys of each query."""
        raise NotImplementedError

    @staticmethod
    def needs(config: Any, w: Workload) -> str | None:
        """Why flex_attention cannot run the workload, or None."""
        if w.device == "cpu" and w.trains:
            return "torch's flex_attention has no backward on a CPU"
        if w.device != "cpu" and w.head_width < LEAST_WIDTH:
            return f"torch's flex_attention needs heads of at least {LEAST_WIDTH} here"
        if w.dtype == "float64":
            return "torch's flex_attention has no float64 kernel"
        return find(w.device).cannot_compile() or None

    @classmethod
    def flops(cls, config: Any, w: Workload) -> Flops:
        """q kᵀ and A v of all pairs of flex_attention's blocks that it visits."""
        # whoever plans may have no GPU
        window = cls.visible(config, replace(w, device="cpu"))
        return Flops(super().flops(config, w).projections, window.flops(w))

    @staticmethod
    def elements(config: Any, w: Workload) -> int:
        return w.heads * w.tokens


class Chosen(Form):
    """A form that reads chosen blocks: its FLOPs are the most that it may compute."""

    @staticmethod
    def visible(config: Any, w: Workload) -> Window:
        """All keys up to the query, of which it reads some."""
        return within(w.seq_len, lambda i: (0 * i, i + 1))

    def read(self, q: Tensor, k: Tensor, v: Tensor, choice: Tensor, mask: Tensor | None) -> Tensor:
        return read_chosen(q, k, v, choice, mask, self.config.block)


@cache
def kernel() -> Callable[..., Tensor]:
    """flex_attention, compiled anew for each shape."""
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=False, fullgraph=True)


def within(N: int, bounds: Callable[[Tensor], Range]) -> Window:
    """The window of consecutive keys from the first one to a stop, which never decrease with i."""

    def allowed(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        first, stop = bounds(i)
        return (first <= j) & (j < stop)

    (first, inner_stop), (inner_first, stop) = map(bounds, queries(N))
    return Window(N, allowed, [(first, stop)], [(inner_first, inner_stop)])


def read_chosen(
    q: Tensor, k: Tensor, v: Tensor, choice: Tensor, mask: Tensor | None, C: int
) -> Tensor:
    """As `selection.read_chosen` for C > 1, by one kernel, which visits what any query reads."""
    N = q.shape[2]
    group = q.shape[1] // choice.shape[1]

    def allowed(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        reads = choice[b, h // group, i, j // C] | (i // C == j // C) & (j <= i)
        return reads if mask is None else reads & mask[b, j]

    used = visited(choice, C).repeat_interleave(group, 1)
    blocks = block_mask(N, allowed, used)
    return kernel()(q, k, v, block_mask=blocks, enable_gqa=q.shape[1] != k.shape[1])


def visited(choice: Tensor, C: int) -> Tensor:
    """Pairs of blocks with a query that reads a key, [B, K, N, M] to [B, K, n, n]."""
    unit = gcd(C, BLOCK)
    N = choice.shape[2]
    rows = pad(choice, (0, 0, 0, -N % BLOCK)).unflatten(2, (-1, BLOCK)).any(3)
    units = rows.repeat_interleave(C // unit, -1)
    units = pad(units, (0, -units.shape[-1] % (BLOCK // unit)))
    chosen = units.unflatten(-1, (-1, BLOCK // unit)).any(-1)[..., : rows.shape[2]]
    block = torch.arange(rows.shape[2], device=choice.device)
    first = block * BLOCK // C * C // BLOCK  # with the first token of its first query's own block
    return chosen | (block >= first[:, None]) & (block <= block[:, None])


def queries(N: int) -> Range:
    """The first and the last query of each block, [n]; the very last may lie beyond N."""
    first = torch.arange(0, N, BLOCK)
    return first, first + BLOCK - 1


def listed(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """For each row, how many blocks it uses, and the numbers of all blocks with those first."""
    blocks = blocks.int()[(None,) * (4 - blocks.dim())]  # of all sequences, and of all heads
    order = blocks.argsort(dim=-1, descending=True, stable=True)
    return blocks.sum(-1, dtype=torch.int32), order.int()
