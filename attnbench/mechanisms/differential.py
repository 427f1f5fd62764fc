"""Differential attention (Ye et al., 2024): the difference of two softmax attentions.

    q, k, v = x W_Q, x W_K, x W_V                      [B, H, N, d] each
    λ = e^{λ_q1 · λ_k1} − e^{λ_q2 · λ_k2} + λ₀,  λ₀ = 0.8 − 0.6 e^{−0.3 l}
    A_h = softmax(q_h k_hᵀ / √d)                       [B, H, N, N]
    o_h = (1 − λ₀) RMSNorm((A_h − λ A_{h + H/2}) [v_h, v_{h + H/2}])   [B, H/2, N, 2 d]

Head h of the first half and its partner in the second read the values of both. The four vectors λ
of width d are shared by the heads; RMSNorm is over each pair of heads of each token, without
learned scales. l counts layers from 0.

`eager` stores the weights. `sdpa` widens q and k by zeros to the width of the values, the only one
that torch's fused kernel takes for all three; two calls with half of the values each would compute
every weight twice. For decoding, the state is the cache of k and v.

Left out: keys and values shared by groups of heads. The paper numbers heads so that partners are
neighbours, which only renumbers the columns of the projections.
Source: arXiv:2410.05258, equations (1) to (3).
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from attnbench import attention as at

EPSILON = 1e-6


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """`layer`: l."""

    layer: int = 0

    def __post_init__(self) -> None:
        self.require_at_least(0, "layer")

    @property
    def first(self) -> float:
        """λ₀."""
        return 0.8 - 0.6 * math.exp(-0.3 * self.layer)


class Differential(at.CachedAttention):
    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        vectors = 0.1 * torch.randn(4, workload.head_width)
        # λ_q1, λ_k1, λ_q2, λ_k2
        self.q1, self.k1, self.q2, self.k2 = (nn.Parameter(vector) for vector in vectors)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return self.difference(self.softmax(q, k, v, at.key_mask(mask), self.causal))

    def softmax(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        """A of all heads times the values of both partners, [B, H, N, 2 d]."""
        both = torch.cat(v.chunk(2, 1), -1).repeat(1, 2, 1, 1)
        return at.softmax_attention(q, k, both, mask, causal)

    def difference(self, o: Tensor) -> Tensor:
        """[B, H, N, 2 d] to the normalised difference, as H heads of width d."""
        first = self.config.first
        a, b = o.chunk(2, 1)
        o = a - ((self.q1 @ self.k1).exp() - (self.q2 @ self.k2).exp() + first) * b
        o = (1 - first) * nn.functional.rms_norm(o, o.shape[-1:], eps=EPSILON)
        return o.unflatten(-1, (2, -1)).transpose(2, 3).flatten(1, 2)  # partners are neighbours

    def attend_next(self, q: Tensor, state: at.Cache, mask: Tensor | None) -> Tensor:
        k, v = state.held()
        A = at.masked_softmax(q / q.shape[-1] ** 0.5 @ k.mT, mask).unflatten(1, (2, -1))
        # partners are rows of products with each half of the values, which are not copied
        A = A.transpose(1, 2).flatten(2, 3)
        o = torch.cat([A @ half for half in v.chunk(2, 1)], -1).unflatten(2, (2, -1))
        return self.difference(o.transpose(1, 2).flatten(1, 2))

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """The projections; then q kᵀ and A times twice as wide values, in full even if causal."""
        return at.Flops(at.projection_flops(w), 3 * 2 * w.tokens * w.seq_len * w.width + scales(w))

    @classmethod
    def step_flops(cls, config: Config, w: at.Workload) -> at.Flops:
        """Those of the tokens alone, whose queries read N keys."""
        one = Differential.flops(config, at.each_alone(w))
        return replace(one, core=w.seq_len * (one.core - scales(w)) + scales(w))

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        return 2 * w.heads * w.tokens * w.seq_len + 4 * w.tokens * w.width


def reference(module: Differential, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    H = module.heads
    d = module.width // module.heads
    first = module.config.first
    own = [slice(h * d, (h + 1) * d) for h in range(H)]
    q, k, v = (m(x) for m in (module.query, module.key, module.value))
    factor = (module.q1 @ module.k1).exp() - (module.q2 @ module.k2).exp() + first
    rows = []
    for i in range(len(x)):
        keys = [j for j in range(len(x)) if mask is None or mask[j]]
        keys = [j for j in keys if j <= i or not module.causal]
        pairs = []
        for h in range(H // 2):
            partner = h + H // 2
            values = torch.cat([v[keys][:, own[h]], v[keys][:, own[partner]]], -1)
            o = x.new_zeros(2 * d)
            if keys:
                a, b = (
                    (k[keys][:, own[g]] @ q[i, own[g]] / d**0.5).softmax(0) for g in (h, partner)
                )
                o = (a - factor * b) @ values
            pairs.append((1 - first) * o / (o.square().mean() + EPSILON).sqrt())
        rows.append(torch.cat(pairs))
    return module.output(torch.stack(rows))


class Sdpa(Differential):
    def softmax(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        d = q.shape[-1]
        both = torch.cat(v.chunk(2, 1), -1).repeat(1, 2, 1, 1)
        # the wider q is divided by a larger root
        q = pad(2**0.5 * q, (0, d))
        k = pad(k, (0, d))
        return at.fused_attention(q, k, both, mask, causal)

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """As eager, but q kᵀ twice as wide, and no products with later keys, if causal."""
        return at.Flops(at.projection_flops(w), 8 * at.fused_pairs(w) * w.width + scales(w))

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        return 9 * w.tokens * w.width


def scales(w: at.Workload) -> int:
    """FLOPs of the two products of λ."""
    return 2 * 2 * w.head_width


def parameters(config: Config, w: at.Workload) -> int:
    """Four D × D projections (with biases), and four vectors of d."""
    return at.projection_parameters(config, w) + 4 * w.head_width


def needs(config: Config, w: at.Workload) -> str | None:
    return f"{w.heads} heads cannot form pairs" if w.heads % 2 else None


CARD = at.Card(
    forms={"eager": Differential, "sdpa": Sdpa},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=at.Family.FULL,
    causality=at.Causality.OPTIONAL,
    paper=at.Paper("Differential Transformer", "Ye et al.", 2024, "arXiv:2410.05258"),
    cost=at.Cost("O(N²·d)", time=2, memory=2),
    examples=(Config(), Config(layer=3, bias=True)),
    default="sdpa",
    needs=needs,
)
