"""Transformer (Vaswani et al., 2017): every token attends to every token.

    q, k, v = x W_Q, x W_K, x W_V                   [B, H, N, d] each
    A = softmax(q kᵀ / √d)                          [B, H, N, N]
    o = A v                                         [B, H, N, d]
    y = merge(o) W_O                                   [B, N, D]

`eager` stores A. `sdpa` leaves the choice of kernel to torch; on a CPU that is its flash kernel as
long as q, k, v are 4-D and there is no attention dropout. The kernel that ran is recorded.
`flex` computes the same function by torch's flex_attention, and if causal no blocks of the future.

For decoding, the state is the cache of k and v.
Source: arXiv:1706.03762, equation (1).
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attnbench import attention as at


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """Softmax attention has no further options."""


class Transformer(at.CachedAttention):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        logits = q @ k.mT / q.shape[-1] ** 0.5  # [B, H, N, N]
        return at.masked_softmax(logits, at.allowed_keys(q, k, at.key_mask(mask), self.causal)) @ v

    def attend_next(self, q: Tensor, state: at.Cache, mask: Tensor | None) -> Tensor:
        return at.softmax_attention(q, *state.held(), mask)

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """q kᵀ and A v; the products are full even if causal."""
        return at.Flops(at.projection_flops(w), 2 * (2 * w.tokens * w.seq_len * w.width))

    @classmethod
    def step_flops(cls, config: Config, w: at.Workload) -> at.Flops:
        """Those of the tokens alone, whose queries read N keys."""
        one = cls.flops(config, at.each_alone(w))
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
            k = module.key(x[keys])[:, part]
            v = module.value(x[keys])[:, part]
            heads.append((k @ q / d**0.5).softmax(0) @ v if keys else torch.zeros_like(q))
        rows.append(torch.cat(heads))
    return module.output(torch.stack(rows))


class Sdpa(Transformer):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return at.fused_attention(q, k, v, at.key_mask(mask), self.causal)

    def attend_next(self, q: Tensor, state: at.Cache, mask: Tensor | None) -> Tensor:
        return at.caches.next_output(q, *state.held(), mask)

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """As eager, but no products with later keys, if causal."""
        return at.Flops(at.projection_flops(w), 4 * w.width * at.fused_pairs(w))

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        return w.heads * w.tokens


class Flex(at.flex.Form, Transformer):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return self.fused(q, k, v, mask)

    @staticmethod
    def visible(config: Config, w: at.Workload) -> at.flex.Window:
        """All keys, up to the query if causal."""
        N = w.seq_len
        causal = w.causal
        return at.flex.within(N, lambda i: (0 * i, i + 1 if causal else 0 * i + N))


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
