"""Fastformer (Wu et al., 2021): tokens meet one summary of all queries and keys, not each other.

    q, k, v = x W_Q, x W_K, x W_V                                [B, H, N, d] each
    α = softmax_i(w_qᵀ q_i / √d)       q̄ = Σ α_i q_i            [B, H, N], [B, H, d]
    p_i = q̄ ∗ k_i                                               [B, H, N, d]
    β = softmax_i(w_kᵀ p_i / √d)       k̄ = Σ β_i p_i            [B, H, N], [B, H, d]
    u_i = k̄ ∗ v_i                                               [B, H, N, d]
    y = merge(u) W_R + merge(q)                                    [B, N, D]

V = Q by default, as in the paper; W_R is the only projection after the core. `add` and `concat`
replace ∗ by + and [·; ·] (Fig. 3); in both, q̄ shifts all logits of β alike and cancels.

`folded` is exact: projections are linear, so both poolings average inputs, not projected tokens,
    α logits = X (W_Qᵀ w_q)      q̄ = W_Q Σ α_i x_i
    β logits = X (W_Kᵀ (w_k ∗ q̄))      k̄ = q̄ ∗ W_K Σ β_i x_i      M = W_Vᵀ diag(k̄) W_Rᵀ + W_Qᵀ
    y = X M                            [B, N, D] by [B, D, D]
with one product over the tokens instead of four; Q, K, P and U are never stored.

Left out: a causal form. Both poolings are global; a strictly causal one is quadratic.
Reconstructed, as the paper gives no sizes: `concat` (w_k [2d], W_R [D, 3D]) and `share_heads`,
which ties the projections of all heads but still computes each.
Source: arXiv:2108.09084, equations (3) to (6).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor, nn

from attnbench import attention as at

WIDTHS = MappingProxyType({"product": 1, "add": 1, "concat": 2})  # of p and k̄, in units of d


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """`interaction`: product, add or concat; `share_query_value`: V = Q; `share_heads`."""

    interaction: str = "product"
    share_query_value: bool = True
    share_heads: bool = False

    def __post_init__(self) -> None:
        self.require_one_of("interaction", WIDTHS)


class Fastformer(at.QKVAttention):
    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        D = workload.width
        H = workload.heads
        d = workload.head_width
        rows = 1 if config.share_heads else H
        span = WIDTHS[config.interaction]
        self.w_q = nn.Parameter(torch.randn(rows, d) / d**0.5)
        self.w_k = nn.Parameter(torch.randn(rows, span * d) / d**0.5)
        if workload.level is at.Level.CORE:
            return
        inner = d if config.share_heads else D
        self.query = nn.Linear(D, inner, bias=config.bias)
        self.key = nn.Linear(D, inner, bias=config.bias)
        if config.share_query_value:
            del self.value
        else:
            self.value = nn.Linear(D, inner, bias=config.bias)
        wide = D if config.interaction != "concat" else 3 * D
        self.output = nn.Linear(wide, D, bias=config.bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q = self.project(x, self.query)
        k = self.project(x, self.key)
        v = q if self.config.share_query_value else self.project(x, self.value)
        return self.output(at.merge(self.attend(q, k, v, mask))) + at.merge(q)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        d = q.shape[-1]
        keys = None if mask is None else mask[:, None, :]
        a = at.masked_softmax((q @ self.w_q[:, :, None]).squeeze(-1) / d**0.5, keys)  # [B, H, N]
        p = self.mix(a[:, :, None] @ q, k)  # [B, H, N, d or 2d]
        b = at.masked_softmax((p @ self.w_k[:, :, None]).squeeze(-1) / d**0.5, keys)  # [B, H, N]
        return self.mix(b[:, :, None] @ p, v)  # [B, H, N, d or 3d]

    def mix(self, pooled: Tensor, x: Tensor) -> Tensor:
        """[B, H, 1, ·] and [B, H, N, d] to [B, H, N, ·]."""
        match self.config.interaction:
            case "product":
                return pooled * x
            case "add":
                return pooled + x
        return torch.cat([pooled.expand(-1, -1, x.shape[2], -1), x], -1)

    def project(self, x: Tensor, linear: nn.Linear) -> Tensor:
        """[B, N, D] to [B, H, N, d]."""
        return self.split(nn.functional.linear(x, *self.tiled(linear)))

    def tiled(self, linear: nn.Linear) -> tuple[Tensor, Tensor | None]:
        """Weight [D, D] and bias [D] of a projection, repeated for each head if heads share it."""
        if not self.config.share_heads:
            return linear.weight, linear.bias
        bias = None if linear.bias is None else linear.bias.repeat(self.heads)
        return linear.weight.repeat(self.heads, 1), bias

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """W_Q, W_K (W_V), W_R; then both logits and both poolings."""
        span = WIDTHS[config.interaction]
        wide = 3 if config.interaction == "concat" else 1
        count = 2 + (not config.share_query_value) + wide
        core = 2 * w.tokens * w.width * (2 + 2 * span)
        return at.Flops(at.projection_flops(w, count), core)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        return 2 * w.tokens * w.width * WIDTHS[config.interaction] + 2 * w.tokens * w.heads


def reference(module: Fastformer, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    H = module.heads
    d = module.width // module.heads
    kind = module.config.interaction
    real = [i for i in range(len(x)) if mask is None or mask[i]]
    q = []
    outputs = []
    for h in range(H):
        row = 0 if module.config.share_heads else h
        part = slice(row * d, (row + 1) * d)
        q_h = module.query(x)[:, part]
        k_h = module.key(x)[:, part]
        v_h = q_h if module.config.share_query_value else module.value(x)[:, part]
        a = torch.stack([module.w_q[row] @ q_h[i] / d**0.5 for i in real]).softmax(0)
        q_bar = torch.stack([a[n] * q_h[i] for n, i in enumerate(real)]).sum(0)
        p = [interact(kind, q_bar, k_i) for k_i in k_h]
        b = torch.stack([module.w_k[row] @ p[i] / d**0.5 for i in real]).softmax(0)
        k_bar = torch.stack([b[n] * p[i] for n, i in enumerate(real)]).sum(0)
        outputs.append(torch.stack([interact(kind, k_bar, v_i) for v_i in v_h]))
        q.append(q_h)
    return module.output(torch.cat(outputs, -1)) + torch.cat(q, -1)


def interact(kind: str, a: Tensor, b: Tensor) -> Tensor:
    if kind == "product":
        return a * b
    return a + b if kind == "add" else torch.cat([a, b])


class Folded(Fastformer):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        H = self.heads
        d = self.width // self.heads
        keys = None if mask is None else mask[:, None, :]
        W_Q, b_Q = self.tiled(self.query)
        W_K, b_K = self.tiled(self.key)
        W_V, b_V = (W_Q, b_Q) if self.config.share_query_value else self.tiled(self.value)

        w = (self.w_q[:, None] @ W_Q.view(H, d, -1)).squeeze(1)  # [H, D]
        a = at.masked_softmax(w @ x.mT / d**0.5, keys)  # [B, H, N]
        q = self.pooled(a, x, W_Q, b_Q)  # [B, H, d]
        w = ((self.w_k * q)[:, :, None] @ W_K.view(H, d, -1)).squeeze(2)  # [B, H, D]
        b = at.masked_softmax(w @ x.mT / d**0.5, keys)  # [B, H, N]
        k = (q * self.pooled(b, x, W_K, b_K)).flatten(1)  # [B, D]

        M = torch.baddbmm(W_Q.T, W_V.T * k[:, None], self.output.weight.T.expand(len(x), -1, -1))
        if b_Q is None or b_V is None:
            return x @ M  # [B, N, D]
        bias = self.output(k * b_V) + b_Q  # [B, D]
        return torch.baddbmm(bias[:, None], x, M)

    def pooled(self, weights: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """W Σ a_i x_i + b Σ a_i: [B, H, N] and [B, N, D] to [B, H, d]."""
        sums = (weights @ x)[:, :, :, None]  # [B, H, D, 1]
        heads = (weight.view(self.heads, -1, self.width) @ sums).squeeze(-1)  # [B, H, d]
        if bias is None:
            return heads
        return heads + weights.sum(-1, keepdim=True) * bias.view(self.heads, -1)

    @staticmethod
    def needs(config: Config, w: at.Workload) -> str | None:
        if w.level is at.Level.CORE:
            return at.NO_SEPARATE_CORE
        if config.interaction != "product":
            return "only interaction=product can be folded; use fastformer:eager"
        return None

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """X M; then four products of X with H vectors, M, and the projections of the vectors."""
        D = w.width
        thin = 4 * 2 * w.tokens * D * w.heads
        vectors = 2 * D * D + w.batch * (3 + config.bias) * 2 * D * D
        return at.Flops(at.projection_flops(w, 1), thin + w.batch * 2 * D**3 + vectors)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        return 4 * w.tokens * w.heads + 2 * w.batch * w.width**2


def parameters(config: Config, w: at.Workload) -> int:
    """W_Q, W_K (W_V), W_R and the two logit vectors; W_Q, W_K, W_V are D × d for shared heads."""
    D = w.width
    d = w.head_width
    inner = d if config.share_heads else D
    span = WIDTHS[config.interaction]
    wide = 3 if config.interaction == "concat" else 1
    inputs = 3 - config.share_query_value
    return inputs * inner * (D + config.bias) + wide * D * D + D * config.bias + (1 + span) * inner


def default(config: Config, w: at.Workload) -> str:
    """Folded once its D³ per sequence is less than the products it saves."""
    if Folded.needs(config, w):
        return "eager"
    return "folded" if w.seq_len >= 2 * w.width else "eager"


def exempt(config: Config) -> Mapping[at.Exemption, str]:
    """Without a key k̄ is 0, and so is a product with it, but not a sum or concatenation."""
    if config.interaction == "product":
        return {}
    return {at.Exemption.NO_VALID_KEY: "without a key, k̄ is 0, but v is added or concatenated"}


CARD = at.Card(
    forms={"eager": Fastformer, "folded": Folded},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=at.Family.MEMORY,
    causality=at.Causality.NEVER,
    paper=at.Paper(
        "Fastformer: Additive Attention Can Be All You Need", "Wu et al.", 2021, "arXiv:2108.09084"
    ),
    cost=at.Cost("O(N·d)", time=1, memory=1),
    examples=(
        Config(),
        Config(bias=True, share_query_value=False),
        Config(interaction="add", share_heads=True),
        Config(interaction="concat", share_query_value=False, bias=True),
        Config(share_heads=True, bias=True),
    ),
    default=default,
    exempt=exempt,
    share_layers=True,
    no_decode_reason="its two queries pool the whole sequence, so a further token changes every"
    " output",
)
