"""Grouped-query attention (Ainslie et al., 2023): groups of heads share their keys and values.

    q = x W_Q                                          [B, H, N, d]
    k, v = x W_K, x W_V                                [B, K, N, d]
    o_h = softmax(q_h k_gᵀ / √d) v_g,  g = ⌊h / G⌋     [B, H, N, d]

Each of the K heads of keys and values serves G = H / K consecutive heads of queries. K = 1 is
multi-query attention (Shazeer, 2019, arXiv:1911.02150), K = H the Transformer.

`eager` stores the weights, with the queries of a group as the rows of one product, so that keys
are not copied. `sdpa` lets the fused kernel of torch share them. `repeat` copies keys and values G
times first, as most libraries of models do. `folded` gives the kernel the rows of eager, for full
attention only, since the rows of a causal group would need a mask.

For decoding, the state is the cache of k and v. One query of each head makes G rows, which sdpa
gives to the kernel; repeat copies the whole cache at every step.
Source: arXiv:2305.13245, section 2.2.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attnbench import attention as at


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """`kv_heads`: K, heads of keys and values, which divides H; None: H/4, or the next divisor
    below."""

    kv_heads: int | None = None

    def __post_init__(self) -> None:
        self.require_at_least(1, "kv_heads")


class GroupedQuery(at.CachedAttention):
    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        self.kv_heads = kv_heads(config, workload)

    @staticmethod
    def core_inputs(config: Config, workload: at.Workload) -> tuple[tuple[int, ...], ...]:
        w = workload
        kv = (w.batch, kv_heads(config, w), w.seq_len, w.head_width)
        return (w.batch, w.heads, w.seq_len, w.head_width), kv, kv

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        logits = self.rows(q) @ (k / q.shape[-1] ** 0.5).mT  # [B, K, G N, N]
        logits = logits.unflatten(2, (-1, q.shape[2]))
        keys = None if mask is None else mask[:, None, None, None]  # [B, 1, 1, 1, N]
        A = at.masked_softmax(logits, at.allowed_keys(q, k, keys, self.causal))
        return self.by_head(A.flatten(2, 3) @ v)

    def rows(self, q: Tensor) -> Tensor:
        """[B, H, N, d] to [B, K, G N, d]."""
        return q.unflatten(1, (self.kv_heads, -1)).flatten(2, 3)

    def by_head(self, o: Tensor) -> Tensor:
        """[B, K, G N, d] to [B, H, N, d]."""
        return o.unflatten(2, (self.heads // self.kv_heads, -1)).flatten(1, 2)

    def attend_next(self, q: Tensor, state: at.Cache) -> Tensor:
        k, v = state.held()
        return at.softmax_attention(at.caches.rows(q, k), k, v, None).view_as(q)

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """W_Q, W_O and the narrower W_K, W_V; then q kᵀ and A v, in full even if causal."""
        width = kv_heads(config, w) * w.head_width
        projections = 2 * w.tokens * w.width * 2 * (w.width + width)
        return at.Flops(projections, 2 * (2 * w.tokens * w.seq_len * w.width))

    @classmethod
    def step_flops(cls, config: Config, w: at.Workload) -> at.Flops:
        """Those of one token, whose query reads N keys."""
        one = cls.flops(config, replace(w, seq_len=1))
        return replace(one, core=w.seq_len * one.core)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        return 2 * w.heads * w.tokens * w.seq_len


def reference(module: GroupedQuery, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    d, group = module.width // module.heads, module.heads // module.kv_heads
    rows = []
    for i in range(len(x)):
        keys = [j for j in range(len(x)) if mask is None or mask[j]]
        keys = [j for j in keys if j <= i or not module.causal]
        heads = []
        for h in range(module.heads):
            q = module.query(x[i])[h * d : (h + 1) * d]
            shared = slice(h // group * d, (h // group + 1) * d)
            k, v = module.key(x[keys])[:, shared], module.value(x[keys])[:, shared]
            heads.append((k @ q / d**0.5).softmax(0) @ v if keys else torch.zeros_like(q))
        rows.append(torch.cat(heads))
    return module.output(torch.stack(rows))


class Sdpa(GroupedQuery):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return at.fused_attention(q, k, v, at.key_mask(mask), self.causal, grouped=True)

    def attend_next(self, q: Tensor, state: at.Cache) -> Tensor:
        return at.caches.next_output(q, *state.held())

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        return w.heads * w.tokens


class Repeat(GroupedQuery):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return at.fused_attention(q, *self.repeated(k, v), at.key_mask(mask), self.causal)

    def repeated(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """[B, K, N, d] to [B, H, N, d]."""
        group = self.heads // self.kv_heads
        return k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)

    def attend_next(self, q: Tensor, state: at.Cache) -> Tensor:
        return at.fused_attention(q, *self.repeated(*state.held()), None)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        return w.heads * w.tokens + 2 * w.tokens * w.width


class Folded(GroupedQuery):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return self.by_head(at.fused_attention(self.rows(q), k, v, at.key_mask(mask)))

    @staticmethod
    def needs(config: Config, w: at.Workload) -> str | None:
        if w.causal:
            return "the rows of a causal group have different keys; use grouped_query:sdpa"
        return None

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        return w.tokens * (w.heads + 2 * w.width)


def kv_heads(config: Config, w: at.Workload) -> int:
    """K."""
    if config.kv_heads is not None:
        return config.kv_heads
    return max(K for K in range(1, max(1, w.heads // 4) + 1) if w.heads % K == 0)


def parameters(config: Config, w: at.Workload) -> int:
    """W_Q and W_O, D × D, and W_K and W_V, D × K d (with biases)."""
    width = kv_heads(config, w) * w.head_width
    return 2 * (w.width + width) * w.width + config.bias * 2 * (w.width + width)


def needs(config: Config, w: at.Workload) -> str | None:
    if w.heads % kv_heads(config, w):
        return f"{w.heads} heads cannot share {config.kv_heads} heads of keys equally"
    return None


CARD = at.Card(
    forms={"eager": GroupedQuery, "sdpa": Sdpa, "repeat": Repeat, "folded": Folded},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=at.Family.SHARED,
    causality=at.Causality.OPTIONAL,
    paper=at.Paper(
        "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints",
        "Ainslie et al.",
        2023,
        "arXiv:2305.13245",
    ),
    cost=at.Cost("O(N²·d)", time=2, memory=2),
    examples=(Config(kv_heads=2), Config(kv_heads=1, bias=True), Config()),
    default="sdpa",
    needs=needs,
)
