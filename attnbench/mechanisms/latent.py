"""Multi-head latent attention (DeepSeek-V2, 2024): keys and values come from one short vector.

    c = RMSNorm(x W_DKV)                               [B, N, r]
    k^R = x W_KR, one for all heads                    [B, N, ρ]
    q = x W_Q, or RMSNorm(x W_DQ) W_UQ                 [B, H, N, d + ρ]
    k_h = [c W_UK,h, k^R],  v_h = c W_UV,h             [B, H, N, d + ρ], [B, H, N, d]
    o_h = softmax(q_h k_hᵀ / √(d + ρ)) v_h             [B, H, N, d]

`eager` and `sdpa` expand keys and values. `absorbed` multiplies W_UK into the queries and W_UV into
the averages, so that all heads share the latent [c, k^R] as key and value:
    q̃_h = [q^C_h W_UK,hᵀ, q^R_h]                       [B, H, N, r + ρ]
    o_h = softmax(q̃_h [c, k^R]ᵀ / √(d + ρ)) c W_UV,h

That is more work per pair of tokens, but a step of decoding then reads only the latent, which is
the whole state: r + ρ numbers for each token.

The core lies between the projections of tokens: q and the latent to o, with W_UK and W_UV inside.
Left out: rotations. k^R and the last ρ numbers of q keep their place and width, unrotated.
Notation: our r is the paper's d_c, our ρ its d_h^R. W_DKV and W_KR are one matrix, and so are W_UK
and W_UV, as in the authors' code.
Source: arXiv:2405.04434, equations (9) to (19).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from attnbench import attention as at

EPSILON = 1e-6


@dataclass(frozen=True, kw_only=True)
class Config(at.OwnHeads):
    """`kv_rank`: r; None: 4 d; `query_rank`: width of W_DQ; None: no W_DQ; `rope`: ρ; None: d / 2;
    `heads`: H; `head_width`: d; None: D / H.

    Biases are those of W_Q or W_DQ, of [W_DKV, W_KR] and of W_O.
    """

    kv_rank: int | None = None
    query_rank: int | None = None
    rope: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_at_least(1, "kv_rank", "query_rank")
        self.require_at_least(0, "rope")


class Cache(NamedTuple):
    """Latents of past tokens in a buffer [B, capacity, r + ρ], and their number."""

    latent: Tensor
    length: int


class Latent(at.CoreAttention):
    one_token_reason = ""

    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        D = workload.width
        H = workload.heads
        d = workload.head_width
        self.rank, self.rope = widths(config, workload)
        self.up = nn.Linear(self.rank, H * 2 * d, bias=False)  # of each head, W_UK then W_UV
        if workload.level is at.Level.CORE:
            return
        query = H * (d + self.rope)
        if config.query_rank is None:
            self.query: nn.Module = nn.Linear(D, query, bias=config.bias)
        else:
            self.query = nn.Sequential(
                nn.Linear(D, config.query_rank, bias=config.bias),
                nn.RMSNorm(config.query_rank, eps=EPSILON),
                nn.Linear(config.query_rank, query, bias=False),
            )
        self.down = nn.Linear(D, self.rank + self.rope, bias=config.bias)
        self.norm = nn.RMSNorm(self.rank, eps=EPSILON)
        self.output = nn.Linear(H * d, D, bias=config.bias)

    @staticmethod
    def core_inputs(config: Config, workload: at.Workload) -> tuple[tuple[int, ...], ...]:
        w = workload
        r, rope = widths(config, workload)
        return (w.batch, w.heads, w.seq_len, w.head_width + rope), (w.batch, w.seq_len, r + rope)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.output(at.merge(self.attend(*self.projected(x), mask)))

    def projected(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """q and the latent of each token."""
        return self.split(self.queried(x)), self.compressed(x)

    def query_latent(self, x: Tensor) -> Tensor:
        """RMSNorm(x W_DQ), of what has W_DQ."""
        down, norm, _ = self.query.children()
        return norm(down(x).to(norm.weight.dtype))

    def queried(self, x: Tensor) -> Tensor:
        """Queries of all heads [B, N, H (d + ρ)]: x W_Q, or of their latent."""
        if isinstance(self.query, nn.Linear):
            return self.query(x)
        *_, up = self.query.children()
        return up(self.query_latent(x))

    def compressed(self, x: Tensor) -> Tensor:
        """The latent [c, k^R] of each token, [B, N, r + ρ]."""
        c, k = self.down(x).split([self.rank, self.rope], -1)
        return torch.cat([self.norm(c.to(self.norm.weight.dtype)), k], -1)

    def attend(self, q: Tensor, latent: Tensor, mask: Tensor | None) -> Tensor:
        """q [B, H, N, d + ρ] and the latent [B, N, r + ρ] to [B, H, N, d]."""
        return at.softmax_attention(q, *self.expanded(latent), at.key_mask(mask), self.causal)

    def expanded(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        """k [B, H, N, d + ρ] and v [B, H, N, d] of the latent."""
        k, v = self.split(self.up(latent[..., : self.rank])).split(self.head_width, -1)
        shared = latent[:, None, :, self.rank :].expand(-1, self.heads, -1, -1)
        return torch.cat([k, shared], -1), v

    def start(self, batch: int, capacity: int) -> Cache:
        return Cache(self.up.weight.new_empty(batch, capacity, self.rank + self.rope), 0)

    def prefill(self, x: Tensor, state: at.State) -> tuple[Tensor, at.State]:
        latent, cache = self.remembered(x, Cache(*state))
        o = self.attend(self.split(self.queried(x)), latent, None)
        return self.output(at.merge(o)), cache

    def step(self, x: Tensor, state: at.State) -> tuple[Tensor, at.State]:
        _, cache = self.remembered(x, Cache(*state))
        past = cache.latent[:, : cache.length]
        q = self.split(self.queried(x))
        keys = None if x.shape[1] == 1 else at.causal_mask(x.shape[1], cache.length, x.device)
        shared = past[:, None]  # one head, which rows of one product read: no head has a copy
        o = at.caches.next_output(self.onto_latent(q), shared, shared, keys)
        return self.output(at.merge(self.from_latent(o))), cache

    def remembered(self, x: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        """The latents of further tokens, and the cache with them behind those that it holds."""
        latent = self.compressed(x)
        length = cache.length + latent.shape[1]
        cache.latent[:, cache.length : length] = latent
        return latent, cache._replace(length=length)

    def absorbed(
        self, q: Tensor, latent: Tensor, keys: Tensor | None, causal: bool = False
    ) -> Tensor:
        """`attend` without expanded keys and values, with a mask that scores [B, H, N, N] take."""
        shared = latent[:, None]  # one head
        o = at.fused_attention(self.onto_latent(q), shared, shared, keys, causal)
        return self.from_latent(o)

    def onto_latent(self, q: Tensor) -> Tensor:
        """q [B, H, N, d + ρ] to q̃ [B, H, N, r + ρ], scaled as if it were as wide as q."""
        d = q.shape[-1] - self.rope
        q = q * ((self.rank + self.rope) / q.shape[-1]) ** 0.5
        return torch.cat([q[..., :d] @ self.ups()[0], q[..., d:]], -1)

    def from_latent(self, o: Tensor) -> Tensor:
        """Averages of latents [B, H, N, r + ρ] to those of values, [B, H, N, d]."""
        return o[..., : self.rank] @ self.ups()[1].mT

    def ups(self) -> tuple[Tensor, ...]:
        """W_UK and W_UV, transposed: [H, d, r] each."""
        return self.up.weight.unflatten(0, (self.heads, -1)).chunk(2, 1)

    @staticmethod
    def state_elements(config: Config, workload: at.Workload) -> int:
        return workload.tokens * sum(widths(config, workload))

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """The projections; then W_UK and W_UV, q kᵀ over d + ρ and A v, in full even if causal."""
        r, rope = widths(config, w)
        scores = 2 * w.tokens * w.seq_len * (2 * w.inner_width + w.heads * rope)
        return at.Flops(projection_flops(config, w), expansion_flops(r, w) + scores)

    @staticmethod
    def step_flops(config: Config, w: at.Workload) -> at.Flops:
        """Those of absorbed for the tokens alone, whose queries read N latents."""
        r, rope = widths(config, w)
        one = at.each_alone(w)
        scores = 4 * w.step * w.tokens * w.heads * (r + rope)
        return at.Flops(projection_flops(config, one), expansion_flops(r, one) + scores)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        _, rope = widths(config, w)
        return 2 * w.heads * w.tokens * w.seq_len + w.tokens * (4 * w.inner_width + w.heads * rope)


def reference(module: Latent, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    heads = []
    for q, k, v in heads_of(module, x):
        outputs = []
        for i in range(len(x)):
            keys = [j for j in range(len(x)) if mask is None or mask[j]]
            keys = [j for j in keys if j <= i or not module.causal]
            A = (k[keys] @ q[i] / len(q[i]) ** 0.5).softmax(0)
            outputs.append(A @ v[keys] if keys else torch.zeros_like(v[i]))
        heads.append(torch.stack(outputs))
    return module.output(torch.cat(heads, -1))


def heads_of(module: Latent, x: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """q, k [N, d + ρ] and v [N, d] of each head of one sequence."""
    r = module.rank
    d = module.head_width
    c, k_R = module.down(x).split([r, module.rope], -1)
    c = c / (c.square().mean(-1, keepdim=True) + EPSILON).sqrt() * module.norm.weight
    for h, q in enumerate(queries(module, x).split(d + module.rope, -1)):
        W_UK, W_UV = module.up.weight[2 * h * d : 2 * (h + 1) * d].split(d)
        yield q, torch.cat([c @ W_UK.T, k_R], -1), c @ W_UV.T


class Sdpa(Latent):
    def attend(self, q: Tensor, latent: Tensor, mask: Tensor | None) -> Tensor:
        k, v = self.expanded(latent)
        # the kernel that stores no weights needs one width for all three
        v = pad(v, (0, self.rope))
        o = at.fused_attention(q, k, v, at.key_mask(mask), self.causal)
        return o[..., : o.shape[-1] - self.rope]

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """As eager, but with A v over d + ρ, and no products with later keys, if causal."""
        r, rope = widths(config, w)
        scores = 4 * at.fused_pairs(w) * (w.inner_width + w.heads * rope)
        return at.Flops(projection_flops(config, w), expansion_flops(r, w) + scores)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        _, rope = widths(config, w)
        return w.tokens * (w.heads + 4 * w.inner_width + 3 * w.heads * rope)


class Absorbed(Latent):
    def attend(self, q: Tensor, latent: Tensor, mask: Tensor | None) -> Tensor:
        return self.absorbed(q, latent, at.key_mask(mask), self.causal)

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """The projections; then q^C W_UKᵀ and the product with W_UV, scores and A over r + ρ;
        no products with later keys, if causal.
        """
        r, rope = widths(config, w)
        scores = 4 * at.fused_pairs(w) * w.heads * (r + rope)
        return at.Flops(projection_flops(config, w), expansion_flops(r, w) + scores)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        return w.heads * w.tokens * (1 + 2 * sum(widths(config, w)))


def widths(config: Config, w: at.Workload) -> tuple[int, int]:
    """r and ρ."""
    r = 4 * w.head_width if config.kv_rank is None else config.kv_rank
    return r, w.head_width // 2 if config.rope is None else config.rope


def expansion_flops(r: int, w: at.Workload) -> int:
    """FLOPs of products of all tokens with W_UK and W_UV."""
    return 2 * w.tokens * r * 2 * w.inner_width


def projections(config: Config, w: at.Workload) -> int:
    """Elements of W_Q or of W_DQ and W_UQ, of [W_DKV, W_KR] and of W_O."""
    r, rope = widths(config, w)
    D = w.width
    query = w.inner_width + w.heads * rope
    rank = config.query_rank
    queries = D * query if rank is None else D * rank + rank * query
    return queries + D * (r + rope) + w.inner_width * D


def projection_flops(config: Config, w: at.Workload) -> int:
    return 2 * w.tokens * projections(config, w)


def parameters(config: Config, w: at.Workload) -> int:
    """The projections (with biases), both norms, W_UK and W_UV."""
    r, rope = widths(config, w)
    rank = config.query_rank
    query = w.inner_width + w.heads * rope if rank is None else rank
    biases = config.bias * (query + r + rope + w.width)
    return projections(config, w) + biases + (rank or 0) + r + 2 * r * w.inner_width


def queries(module: Latent, x: Tensor) -> Tensor:
    """x W_Q, or RMSNorm(x W_DQ) W_UQ."""
    if module.config.query_rank is None:
        return module.query(x)
    down, norm, up = module.query.children()
    c = down(x)
    return up(c / (c.square().mean(-1, keepdim=True) + EPSILON).sqrt() * norm.weight)


def default(config: Config, w: at.Workload) -> str:
    """Expanded, unless the latent is so small that absorbing it is less work."""
    absorbed, expanded = (form.flops(config, w).core for form in (Absorbed, Sdpa))
    return "absorbed" if absorbed < expanded else "sdpa"


CARD = at.Card(
    forms={"eager": Latent, "sdpa": Sdpa, "absorbed": Absorbed},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=at.Family.SHARED,
    causality=at.Causality.OPTIONAL,
    paper=at.Paper(
        "DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts Language Model",
        "DeepSeek-AI",
        2024,
        "arXiv:2405.04434",
    ),
    cost=at.Cost("O(N²·d)", time=2, memory=2),
    examples=(
        Config(),
        Config(kv_rank=6, query_rank=5, rope=3, bias=True),
        Config(kv_rank=2, rope=0),
        Config(kv_rank=7, query_rank=6, rope=2, heads=3, head_width=6, bias=True),
    ),
    default=default,
)
