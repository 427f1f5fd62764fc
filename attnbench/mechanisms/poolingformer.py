"""Poolingformer (Zhang et al., 2021): a sliding window, then a wider one over pooled keys.

    q, k, v = x W_Q, x W_K, x W_V                                        [B, H, N, d] each
    y_i = Σ_j softmax_j(q_i k_jᵀ / √d) v_j,        |i − j| ≤ w₁/2        [B, H, N, d]
    k̄_m = Σ_t δ_mt k′_t,  v̄_m = Σ_t δ′_mt v′_t,  q′, k′, v′ projected from y  [B, H, N/ξ, d]
    z_i = Σ_m softmax_m(q′_i k̄_mᵀ / √d) v̄_m,       |i − c_m| ≤ w₂/2      [B, H, N, d]
    out = (y + z) W_O                                                    [B, N, D]

Pooled key m represents tokens m ξ to m ξ + ξ − 1 and exists if one of them is real. It pools the
real ones among the κ tokens around its centre c_m = m ξ + ⌊ξ/2⌋. `ldconv`, the paper's lightweight
dynamic convolution, weights them depending on the centre, δ_m = softmax(W_p k′_c) and
δ′_m = softmax(W_p v′_c) with one W_p [κ, d] for all heads; a centre that is not real counts as 0.
`mean` gives equal weights; `max` is taken per feature.

The paper leaves open how the levels are combined. Reconstructed: level 2 reads y, with merged heads
and no residual, and one output projection follows the sum. κ = 256 is the other reading of the
paper's "window of 256", a window of convolution weights.

`eager` computes blocks of w₁/2 and of w₂/2 queries against three blocks of keys each; `blocked`
fits the blocks to the machine. No causal form: a pooled key includes later tokens.
Source: arXiv:2105.04371, section 3.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from attnbench import attention as at
from attnbench.mechanisms import longformer
from attnbench.mechanisms.longformer import Longformer, lowered, padded, windows

POOLINGS = ("ldconv", "mean", "max")


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """`window`: w₁; `pool_window`: w₂; `kernel`: κ; `stride`: ξ; `pooling`: ldconv, mean or max."""

    window: int = 128
    pool_window: int = 512
    kernel: int = 5
    stride: int = 4
    pooling: str = "ldconv"

    def __post_init__(self) -> None:
        longformer.Config(window=self.window)
        self.require_one_of("pooling", POOLINGS)
        self.require_at_least(1, "stride")
        if min(self.kernel, self.pool_window) < self.stride:
            raise ValueError(f"kernel and pool_window must be at least stride = {self.stride}")


class Poolingformer(at.QKVAttention):
    level_1: type[Longformer] = Longformer

    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        D = workload.width
        self.band = self.level_1(band(config), replace(workload, level=at.Level.CORE))
        self.query_2 = nn.Linear(D, D, bias=config.bias)
        self.key_2 = nn.Linear(D, D, bias=config.bias)
        self.value_2 = nn.Linear(D, D, bias=config.bias)
        if config.pooling == "ldconv":
            d = workload.head_width
            self.W_p = nn.Parameter(torch.randn(config.kernel, d) / d**0.5)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = (self.split(linear(x)) for linear in (self.query, self.key, self.value))
        y = at.merge(self.band.local(q, k, v, mask))  # [B, N, D]
        q, k, v = (self.split(linear(y)) for linear in (self.query_2, self.key_2, self.value_2))
        real = x.new_ones(1, x.shape[1], dtype=torch.bool) if mask is None else mask
        used = self.covered(real)  # [1 or B, M, κ]
        z = self.level_2(q, k, v, used, real)
        o = y + at.merge(z)
        return self.output(o if mask is None else o * mask[..., None])

    def covered(self, real: Tensor) -> Tensor:
        """[·, N] to [·, M, κ]: which tokens around each centre are real."""
        κ = self.config.kernel
        ξ = self.config.stride
        before = κ // 2 - ξ // 2
        return pad(real, (before, -real.shape[1] % ξ + κ - ξ - before)).unfold(-1, κ, ξ)

    def pooled(self, x: Tensor, used: Tensor) -> Tensor:
        """[B, H, N, d] to [B, H, M, d]."""
        κ = self.config.kernel
        ξ = self.config.stride
        x = padded(x, ξ)
        parts = windows(x, ξ, κ // 2 - ξ // 2, κ)  # [B, H, M, κ, d]
        used = used[:, None]
        if self.config.pooling == "max":
            lowest = torch.finfo(x.dtype).min
            highest = parts.masked_fill(~used[..., None], lowest).amax(-2)
            return highest.masked_fill(~used.any(-1, keepdim=True), 0)
        weights = lowered(used, x)  # [1 or B, 1, M, κ]
        if self.config.pooling == "ldconv":
            centre = x[:, :, ξ // 2 :: ξ] * used[..., κ // 2, None]
            weights = weights + centre @ self.W_p.T
        weights = weights.softmax(-1).expand(*parts.shape[:-1])
        return (weights[..., None, :] @ parts).squeeze(-2)

    def level_2(self, q: Tensor, k: Tensor, v: Tensor, used: Tensor, real: Tensor) -> Tensor:
        """Attention of each query over the pooled keys near it: [B, H, N, d] to the same shape."""
        N, d = q.shape[2:]
        ξ = self.config.stride
        C, before, L = self.blocks(self.config)
        q = padded(q / d**0.5, C).unflatten(2, (-1, C))  # [B, H, n, C, d]
        exists = pad(real, (0, -N % C)).unflatten(1, (-1, ξ)).any(-1)  # [1 or B, n C / ξ]
        exists = pad(exists, (before, L - C // ξ - before)).unfold(-1, L, C // ξ)
        centre = (torch.arange(L, device=q.device) - before) * ξ + ξ // 2
        offset = centre - torch.arange(C, device=q.device)[:, None]  # [C, L]
        near = offset.abs() <= self.config.pool_window // 2
        bias = lowered(exists[:, None, :, None] & near, q)  # [1 or B, 1, n, C, L]
        A = (q @ self.around(k, used).mT).add_(bias).softmax(-1)  # [B, H, n, C, L]
        return (A @ self.around(v, used)).flatten(2, 3)[:, :, :N]

    def around(self, x: Tensor, used: Tensor) -> Tensor:
        """[B, H, N, d] to the pooled keys around each block, [B, H, n, L, d]."""
        C, before, L = self.blocks(self.config)
        C = C // self.config.stride
        return windows(padded(self.pooled(x, used), C), C, before, L)

    @classmethod
    def blocks(cls, config: Config) -> tuple[int, int, int]:
        """C queries of a block, the number of pooled keys before it, and of all its pooled keys."""
        ξ = config.stride
        half = config.pool_window // 2
        C = ξ * -(-cls.level_1.block(band(config, config.pool_window)) // ξ)
        before = (half + ξ // 2) // ξ
        return C, before, before + (C - 1 + half - ξ // 2) // ξ + 1

    @staticmethod
    def needs(config: Config, w: at.Workload) -> str | None:
        if w.level is at.Level.CORE:
            return "projections separate its two levels, so there is no separate core"
        return None

    @classmethod
    def flops(cls, config: Config, w: at.Workload) -> at.Flops:
        """Seven projections; both levels, padded to blocks; weights and sums of the pooling."""
        C, _, L = cls.blocks(config)
        M = -(-w.seq_len // config.stride)
        level_2 = 4 * w.batch * w.width * (w.seq_len + -w.seq_len % C) * L
        pooling = {"max": 0, "mean": 1, "ldconv": 2}[config.pooling]
        pooling *= 4 * w.batch * w.width * M * config.kernel
        level_1 = cls.level_1.flops(band(config), w).core
        return at.Flops(at.projection_flops(w, 7), level_1 + level_2 + pooling)

    @classmethod
    def elements(cls, config: Config, w: at.Workload) -> int:
        """Logits and weights of level 2, and the weights that level 1 keeps for backward."""
        level_1 = cls.level_1.elements(band(config), w) // 3
        return level_1 + 2 * w.heads * w.tokens * cls.blocks(config)[2]


def reference(module: Poolingformer, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    N = len(x)
    c = module.config
    d = module.width // module.heads
    real = [i for i in range(N) if mask is None or mask[i]]
    heads = [slice(h * d, (h + 1) * d) for h in range(module.heads)]

    def attend(q: Tensor, k: list[Tensor], v: list[Tensor]) -> Tensor:
        if not k:
            return torch.zeros_like(q)
        K = torch.stack(k)
        V = torch.stack(v)
        return torch.cat([(K[:, s] @ q[s] / d**0.5).softmax(0) @ V[:, s] for s in heads])

    def pool(t: Tensor, centre: int, tokens: list[int]) -> Tensor:
        if c.pooling == "max":
            return t[tokens].amax(0)
        if c.pooling == "mean":
            return t[tokens].mean(0)
        middle = t[centre] if centre in tokens else torch.zeros_like(t[0])
        rows = [j - centre + c.kernel // 2 for j in tokens]
        weights = [(module.W_p[rows] @ middle[s]).softmax(0) for s in heads]
        return torch.cat([w @ t[tokens][:, s] for w, s in zip(weights, heads, strict=True)])

    q = module.query(x)
    k = module.key(x)
    v = module.value(x)
    near = [[j for j in real if abs(i - j) <= c.window // 2] for i in range(N)]
    y = torch.stack(
        [attend(q[i], [k[j] for j in near[i]], [v[j] for j in near[i]]) for i in range(N)]
    )
    q = module.query_2(y)
    k = module.key_2(y)
    v = module.value_2(y)
    spans = {}
    for centre in range(c.stride // 2, N + c.stride, c.stride):
        block = centre - c.stride // 2
        start = centre - c.kernel // 2
        if any(block <= j < block + c.stride for j in real):
            spans[centre] = [j for j in real if start <= j < start + c.kernel]
    k_bar = {m: pool(k, m, tokens) for m, tokens in spans.items()}
    v_bar = {m: pool(v, m, tokens) for m, tokens in spans.items()}
    rows = []
    for i in range(N):
        pooled = [m for m in spans if abs(i - m) <= c.pool_window // 2]
        z = attend(q[i], [k_bar[m] for m in pooled], [v_bar[m] for m in pooled])
        rows.append(y[i] + z)
    return module.output(torch.stack(rows))


class Blocked(Poolingformer):
    level_1 = longformer.Blocked


def band(config: Config, window: int | None = None) -> longformer.Config:
    """Longformer without global tokens, with the window of level 1 or of `window` tokens."""
    window = window or config.window
    return longformer.Config(window=window + window % 2, global_tokens=0)


def parameters(config: Config, w: at.Workload) -> int:
    """Seven projections, and W_p where weights are learned."""
    learned = config.kernel * w.head_width * (config.pooling == "ldconv")
    return at.projection_parameters(config, w) * 7 // 4 + learned


CARD = at.Card(
    forms={"eager": Poolingformer, "blocked": Blocked},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=at.Family.FIXED_MEMORY,
    causality=at.Causality.NEVER,
    paper=at.Paper(
        "Poolingformer: Long Document Modeling with Pooling Attention",
        "Zhang et al.",
        2021,
        "arXiv:2105.04371",
    ),
    cost=at.Cost("O(N·d·w)", time=1, memory=1),
    symbols={"w": ("windows of its two levels", "window", "pool_window")},
    examples=(
        Config(window=4, pool_window=12, kernel=5, stride=4, bias=True),
        Config(window=6, pool_window=7, kernel=3, stride=2, pooling="mean"),
        Config(window=2, pool_window=9, kernel=6, stride=3, pooling="max", bias=True),
        Config(kernel=48),
    ),
    default="blocked",
    tolerance=at.Tolerance(float16=0.1, reason="rounding may change which token is the largest"),
    no_decode_reason="a pooled key averages tokens after its query",
)
