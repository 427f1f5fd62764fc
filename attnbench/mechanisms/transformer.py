"""Transformer (Vaswani et al., 2017): every token attends to every token.

    A = softmax(q kᵀ / √d)                          [B, H, N, N]
    o = A v                                         [B, H, N, d]
    y = merge(o) W_O                                   [B, N, D]

`eager` stores A. `sdpa` leaves the choice of kernel to torch; on a CPU that is its flash kernel as
long as q, k, v are 4-D and there is no attention dropout. The kernel that ran is recorded.
`flex` computes the same function by another kernel of torch.

For decoding, the state is the cache of k and v.
Source: arXiv:1706.03762, equation (1).
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from attnbench import attention as at


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """Softmax attention has no further options."""


class Transformer(at.CachedAttention):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        logits = q @ k.mT / q.shape[-1] ** 0.5  # [B, H, N, N]
        return at.masked_softmax(logits, at.allowed_keys(q, k, at.key_mask(mask), self.causal)) @ v

    def attend_next(self, q: Tensor, state: at.Cache) -> Tensor:
        return at.softmax_attention(q, *state.held(), None)

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """q kᵀ and A v; the products are full even if causal."""
        return at.Flops(at.projection_flops(w), 2 * (2 * w.tokens * w.seq_len * w.width))

    @classmethod
    def step_flops(cls, config: Config, w: at.Workload) -> at.Flops:
        """Those of one token, whose query reads N keys."""
        one = cls.flops(config, replace(w, seq_len=1))
        return replace(one, core=w.seq_len * one.core)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        return 2 * w.heads * w.tokens * w.seq_len


def reference(module: Transformer, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    d = module.width // module.heads
    rows = []
    for i in range(len(x)):
        keys = [j for j in range(len(x)) if mask is None or mask[j]]
        keys = [j for j in keys if j <= i or not module.causal]
        heads = []
        for h in range(module.heads):
            part = slice(h * d, (h + 1) * d)
            q = module.query(x[i])[part]
            k, v = module.key(x[keys])[:, part], module.value(x[keys])[:, part]
            heads.append((k @ q / d**0.5).softmax(0) @ v if keys else torch.zeros_like(q))
        rows.append(torch.cat(heads))
    return module.output(torch.stack(rows))


class Sdpa(Transformer):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        if mask is None:
            return F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        allowed = at.allowed_keys(q, k, at.key_mask(mask), self.causal)
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        seen = mask.cumsum(-1) > 0 if self.causal else mask.any(-1, keepdim=True)  # [B, N or 1]
        return o.masked_fill(~seen[:, None, :, None], 0)

    def attend_next(self, q: Tensor, state: at.Cache) -> Tensor:
        return at.caches.next_output(q, *state.held())

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        return w.heads * w.tokens


class Flex(Transformer):
    compiles = True

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        blocks = triangle(q.shape[-2], q.device) if self.causal else None
        return at.flex.kernel()(q, k, v, block_mask=blocks)

    @staticmethod
    def needs(config: Config, w: at.Workload) -> str | None:
        if w.padding:
            return "this form takes no padding mask; use transformer:sdpa"
        return at.flex.needs(w)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        return w.heads * w.tokens


def past(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return j <= i


@cache
def triangle(N: int, device: torch.device) -> Any:
    """The blocks of a causal mask for flex_attention, computed without an N × N mask.

    Blocks on the diagonal are used in part, as is the whole last row if N truncates it; blocks
    before the diagonal are used entirely.
    """
    from torch.nn.attention.flex_attention import BlockMask

    n = -(-N // at.flex.BLOCK)
    row = torch.arange(n, device=device, dtype=torch.int32)
    partly, whole = torch.ones_like(row), row.clone()
    if N % at.flex.BLOCK:
        partly[-1], whole[-1] = n, 0
    order = row.repeat(n, 1)  # [n, n]: the blocks of each row by number
    return BlockMask.from_kv_blocks(
        partly[None, None],
        ((order + row[:, None]) % n)[None, None],
        whole[None, None],
        order[None, None],
        BLOCK_SIZE=at.flex.BLOCK,
        mask_mod=past,
        seq_lengths=(N, N),
    )


CARD = at.Card(
    forms={"eager": Transformer, "sdpa": Sdpa, "flex": Flex},
    config=Config,
    reference=reference,
    parameters=at.projection_parameters,
    family=at.Family.FULL,
    causality=at.Causality.OPTIONAL,
    paper=at.Paper("Attention Is All You Need", "Vaswani et al.", 2017, "arXiv:1706.03762"),
    cost=at.Cost("O(N²·d)", time=2, memory=2),
    examples=(Config(), Config(bias=True)),
    default="sdpa",  # of a padded batch too, for which eager would store A
)
