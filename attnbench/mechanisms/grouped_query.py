"""Grouped-query attention (Ainslie et al., 2023): groups of heads share their keys and values.

    q = x W_Q                                          [B, H, N, d]
    k, v = x W_K, x W_V                                [B, K, N, d]
    o_h = softmax(q_h k_gᵀ / √d) v_g,  g = ⌊h / G⌋     [B, H, N, d]

Each of the K heads of keys and values serves G = H / K consecutive heads of queries. K = 1 is
multi-query attention (Shazeer, 2019, arXiv:1911.02150), K = H the Transformer. Models have options:
a gate, o ⊙ σ(x W_G) in place of o (Qwen3-Next, arXiv:2505.06708), and a learned sink logit σ_h of
each head, which adds e^{σ_h} to the normaliser alone (gpt-oss, arXiv:2508.10925).

`eager` stores the weights, with the queries of a group as the rows of one product, so that keys
are not copied. `sdpa` lets the fused kernel of torch share them, or repeats them on GPUs without
such a kernel. `repeat` copies keys and values G times first, as most libraries of models do.
`folded` gives the kernel the rows of eager, for full attention only, since the rows of a causal
group would need a mask. A sink logit is a first token whose key only a further column of q reaches,
and whose value is 0.

For decoding, the state is the cache of k and v. One query of each head makes G rows, which sdpa
gives to the kernel; repeat copies the whole cache at every step.
Source: arXiv:2305.13245, section 2.2.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from attnbench import attention as at


@dataclass(frozen=True, kw_only=True)
class Grouped(at.BaseConfig):
    """`kv_heads`: K, heads of keys and values, which divides H; None: H/4, or the next divisor
    below."""

    kv_heads: int | None = None

    def __post_init__(self) -> None:
        self.require_at_least(1, "kv_heads")


@dataclass(frozen=True, kw_only=True)
class Config(at.OwnHeads, Grouped):
    """`kv_heads`: K, heads of keys and values, which divides H; None: H/4, or the next divisor
    below; `gate`: whether there is W_G; `sink_logit`: whether there is a σ for each head;
    `heads`: H; `head_width`: d; None: D / H."""

    gate: bool = False
    sink_logit: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_at_least(1, "kv_heads")


class GroupedQuery(at.CachedAttention):
    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        self.kv_heads = kv_heads(config, workload)
        self.sink = nn.Parameter(torch.zeros(workload.heads)) if config.sink_logit else None  # σ
        if config.gate and workload.level is not at.Level.CORE:
            self.gate = nn.Linear(workload.width, workload.inner_width, bias=config.bias)

    @staticmethod
    def core_inputs(config: Config, workload: at.Workload) -> tuple[tuple[int, ...], ...]:
        w = workload
        kv = (w.batch, kv_heads(config, w), w.seq_len, w.head_width)
        return (w.batch, w.heads, w.seq_len, w.head_width), kv, kv

    def finished(self, o: Tensor, x: Tensor) -> Tensor:
        return self.output(
            at.merge(o) * self.gate(x).sigmoid() if self.config.gate else at.merge(o)
        )

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        if self.sink is None:
            return self.read(q, k, v, mask)
        d = q.shape[-1]
        # the wider q is divided by a larger root
        q = torch.cat([q / d**0.5, self.sink.view(-1, 1, 1).expand(*q.shape[:-1], 1)], -1)
        more = at.further_columns(d, 1, q.device.type)
        q = pad((d + more) ** 0.5 * q, (0, more - 1, 1, 0))
        k, v = (pad(t, (0, more, 1, 0)) for t in (k, v))
        k[:, :, 0, d] = 1
        mask = None if mask is None else pad(mask, (1, 0), value=True)
        return self.read(q, k, v, mask)[:, :, 1:, :d]

    def read(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """softmax(q kᵀ / √d) v without sinks."""
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

    def attend_next(self, q: Tensor, state: at.Cache, mask: Tensor | None) -> Tensor:
        k, v = state.held()
        if self.sink is not None:
            return at.caches.next_output(q, k, v, mask, self.sink)
        queries, mask = at.caches.rows(q, k, mask)
        return at.softmax_attention(queries, k, v, mask).view_as(q)

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """W_Q, W_O, W_G and the narrower W_K, W_V; then q kᵀ and A v, in full even if causal."""
        width = (2 + config.gate) * w.inner_width + 2 * kv_heads(config, w) * w.head_width
        core = fused_flops(config, replace(w, causal=False))
        return at.Flops(2 * w.tokens * w.width * width, core)

    @classmethod
    def step_flops(cls, config: Config, w: at.Workload) -> at.Flops:
        """Those of the tokens alone, whose queries read N keys."""
        one = cls.flops(config, at.each_alone(w))
        return replace(one, core=4 * w.step * w.tokens * w.inner_width)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        return 2 * w.heads * w.tokens * w.seq_len + extended(config, w)


def reference(module: GroupedQuery, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    heads = []
    for h, (q, k, v) in enumerate(heads_of(module, x)):
        outputs = []
        for i in range(len(x)):
            keys = [j for j in range(len(x)) if mask is None or mask[j]]
            keys = [j for j in keys if j <= i or not module.causal]
            logits = k[keys] @ q[i] / len(q[i]) ** 0.5
            if module.sink is not None:
                logits = torch.cat([logits, module.sink[h : h + 1]])
            A = logits.softmax(0)[: len(keys)]
            outputs.append(A @ v[keys] if keys else torch.zeros_like(v[i]))
        heads.append(torch.stack(outputs))
    o = torch.cat(heads, -1)
    return module.output(o * module.gate(x).sigmoid() if module.config.gate else o)


def heads_of(module: Any, x: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """q, k and v of each head of one sequence, [N, d] each."""
    q, k, v = (m(x).split(module.head_width, -1) for m in (module.query, module.key, module.value))
    for h in range(module.heads):
        g = h * module.kv_heads // module.heads
        yield q[h], k[g], v[g]


class Sdpa(GroupedQuery):
    def read(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return at.fused_attention(q, k, v, at.key_mask(mask), self.causal)

    def attend_next(self, q: Tensor, state: at.Cache, mask: Tensor | None) -> Tensor:
        return at.caches.next_output(q, *state.held(), mask, self.sink)

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """As eager, but no products with later keys, if causal."""
        return replace(GroupedQuery.flops(config, w), core=fused_flops(config, w))

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        return w.heads * w.tokens + extended(config, w)


class Repeat(GroupedQuery):
    def read(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return at.fused_attention(q, *self.repeated(k, v), at.key_mask(mask), self.causal)

    def repeated(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """[B, K, N, d] to [B, H, N, d]."""
        group = self.heads // self.kv_heads
        return k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)

    def attend_next(self, q: Tensor, state: at.Cache, mask: Tensor | None) -> Tensor:
        return at.caches.next_output(q, *self.repeated(*state.held()), mask, self.sink)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        return w.heads * w.tokens + 2 * w.tokens * w.inner_width + extended(config, w)

    flops = staticmethod(Sdpa.flops)


class Folded(GroupedQuery):
    def read(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return self.by_head(at.fused_attention(self.rows(q), k, v, at.key_mask(mask)))

    @staticmethod
    def needs(config: Config, w: at.Workload) -> str | None:
        if w.causal:
            return "the rows of a causal group have different keys; use grouped_query:sdpa"
        return None

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        return w.tokens * (w.heads + 2 * w.inner_width) + extended(config, w)


def fused_flops(config: Config, w: at.Workload) -> int:
    """Those of q kᵀ and A v by a fused kernel."""
    d = w.head_width + at.further_columns(w.head_width, config.sink_logit, w.device)
    return 4 * w.heads * at.fused_pairs(w, config.sink_logit) * d


def kv_heads(config: Grouped, w: at.Workload) -> int:
    """K."""
    if config.kv_heads is not None:
        return config.kv_heads
    return max(K for K in range(1, max(1, w.heads // 4) + 1) if w.heads % K == 0)


def extended(config: Config, w: at.Workload) -> int:
    """Elements of q, k, v and o with a sink, of q also without its token."""
    more = at.further_columns(w.head_width, 1, w.device)
    return 5 * w.tokens * (w.inner_width + more * w.heads) if config.sink_logit else 0


def parameters(config: Config, w: at.Workload) -> int:
    """W_Q, W_O and W_G, D × H d, and W_K and W_V, D × K d (with biases), and σ."""
    width = (2 + config.gate) * w.inner_width + 2 * kv_heads(config, w) * w.head_width
    biases = config.bias * (width + w.width - w.inner_width)
    return width * w.width + biases + config.sink_logit * w.heads


def needs(config: Grouped, w: at.Workload) -> str | None:
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
    examples=(
        Config(kv_heads=2),
        Config(kv_heads=1, bias=True),
        Config(kv_heads=2, gate=True, sink_logit=True),
        Config(kv_heads=3, heads=6, head_width=5, gate=True, bias=True),
        Config(),
    ),
    default="sdpa",
    needs=needs,
)
