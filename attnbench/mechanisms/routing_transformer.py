"""Routing Transformer (Roy et al., 2020): tokens attend within clusters of similar ones.

    q, k, v = x W_Q, x W_K, x W_V                         [B, H, N, d] each
    q̃, k̃ = q, k with zero mean and unit variance        [B, H/2, N, d]
    Q_c = the W tokens with the largest μ_c · q̃_i,  K_c likewise of k̃     [B, H/2, K, W]
    o_i = mean over clusters c with i ∈ Q_c of Σ_j∈K_c softmax_j(q̃_i · k̃_j / √d) v_j
    the other heads: the token's block of M and the adjacent blocks     [B, H/2, N, d]
    y = merge(o) W_O                                       [B, N, D]

Causal: k̃ = q̃, so K_c = Q_c and these heads have no key projection; j ≤ i by position, and local
heads do not see the next block. Members are chosen over the whole sequence, so a later token may
push an earlier one out of a cluster. The output of a token in no cluster is 0.

The centroids μ: [H/2, K, d] are not parameters: each training step moves them by 1 − λ towards the
mean of their nearest tokens. `auxiliary_loss` is the commitment loss, β mean (x̃ − μ_nearest)² over
q̃ and k̃. Scores are computed one head at a time.

`sdpa` is exact: fused kernels over clusters and over blocks.

Differs: for μ and o the paper prints sums where its code takes means; both are means here.
Reconstructed: 1/√d, and μ drawn as normalised noise. Left out: relative positions.
Notation: our K is the paper's k, our W its w, our M its attention window.
Source: arXiv:2003.05997, section 4.1 and algorithm 1.
"""

from dataclasses import dataclass
from math import isqrt

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnbench import attention as at


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """`clusters`: K; None: √N; `members`: W; None: N / K; `local_heads`; None: half of all;
    `window`: M; `decay`: λ; `commitment`: β."""

    clusters: int | None = None
    members: int | None = None
    local_heads: int | None = None
    window: int = 256
    decay: float = 0.999
    commitment: float = 1e-4

    def __post_init__(self) -> None:
        self.require_at_least(1, "clusters", "members", "window")
        self.require_at_least(0, "local_heads")
        if not 0 <= self.decay <= 1:
            raise ValueError(f"decay is {self.decay}; it must be between 0 and 1")


def shape(config: Config, N: int) -> tuple[int, int]:
    """K and W; W is at most N."""
    K = config.clusters or max(1, isqrt(N))
    return K, min(N, config.members or -(-N // K))


def blocks(config: Config, w: at.Workload) -> tuple[int, int, int]:
    """M (at most N), the number of blocks, and the number of keys that a query sees."""
    M = min(config.window, w.seq_len)
    C = -(-w.seq_len // M)
    return M, C, M if C == 1 else (2 if w.causal else 3) * M


def local_heads(config: Config, w: at.Workload) -> int:
    return w.heads // 2 if config.local_heads is None else config.local_heads


class RoutingTransformer(at.QKVAttention):
    kernel: at.Kernel = staticmethod(at.biased_attention)

    centroids: Tensor  # [H', K, d]

    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        D = workload.width
        d = workload.head_width
        self.local = local_heads(config, workload)
        if workload.level is not at.Level.CORE and self.causal:
            if self.local:
                self.key = nn.Linear(D, self.local * d, bias=config.bias)
            else:
                del self.key
        K, _ = shape(config, workload.seq_len)
        means = torch.randn(workload.heads - self.local, K, d)
        self.register_buffer("centroids", F.layer_norm(means, (d,)))
        self.members: list[Tensor] = []
        self.commitment: Tensor | None = None

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q = self.split(self.query(x))
        v = self.split(self.value(x))
        if self.causal and not self.local:
            k = q[:, :0]
        else:
            k = self.key(x).unflatten(-1, (-1, q.shape[-1])).transpose(1, 2)
        return self.output(at.merge(self.attend(q, k, v, mask)))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """If causal, the keys of routing heads are ignored."""
        L = self.local
        parts = []
        if L:
            parts.append(self.nearby(q[:, :L], k[:, :L], v[:, :L], mask))
        if self.heads > L:
            parts.append(self.route(q[:, L:], k[:, L:], v[:, L:], mask))
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def route(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        q = F.layer_norm(q, q.shape[-1:])
        items = [q] if self.causal else [q, F.layer_norm(k, k.shape[-1:])]
        with torch.no_grad():
            assigned = [self.assign(x, mask) for x in items]
        self.members = [members for members, _ in assigned]
        if self.training and torch.is_grad_enabled():
            self.learn(items, [nearest for _, nearest in assigned], mask)
        queries = self.members[0]  # [B, H', K, W]
        keys = self.members[-1]
        real = None
        if mask is not None:
            tokens = mask[:, None, None].expand(*keys.shape[:3], -1)
            real = tokens.gather(-1, keys)
            self.members = [m.where(tokens.gather(-1, m), -1) for m in self.members]
        bias, seen = self.bias(real, queries.shape[-1], q)
        q_c = gathered(q, queries)
        k_c = gathered(items[-1], keys)
        v_c = gathered(v, keys)
        o = self.kernel(q_c, k_c, v_c, bias)
        return scattered_mean(o if seen is None else o * seen, queries, q.shape[2])

    def assign(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Members [B, H', K, W] in order of position, and nearest centroids [B, H', N]."""
        _, W = shape(self.config, x.shape[2])
        members = []
        nearest = []
        for h, centroids in enumerate(self.centroids.to(x.dtype)):
            scores = centroids @ x[:, h].mT  # [B, K, N]
            if self.training:
                nearest.append(scores.max(1).indices)
            if mask is not None:
                scores = scores.masked_fill(~mask[:, None], -torch.inf)
            members.append(scores.topk(W, sorted=False).indices.sort(-1).values)
        return torch.stack(members, 1), torch.stack(nearest, 1) if nearest else x.new_empty(0)

    def bias(
        self, keys: Tensor | None, W: int, like: Tensor
    ) -> tuple[Tensor | None, Tensor | None]:
        """What to add to the logits of a cluster, and which of its queries have any key."""
        if keys is None and not self.causal:
            return None, None
        allowed = torch.ones(W, W, dtype=torch.bool, device=like.device)
        allowed = allowed.tril() if self.causal else allowed
        allowed = allowed if keys is None else allowed & keys[..., None, :]
        seen = None if keys is None else allowed.any(-1, keepdim=True)
        return at.additive(allowed, like.dtype), seen

    def learn(self, items: list[Tensor], nearest: list[Tensor], mask: Tensor | None) -> None:
        """Moves the centroids, and records the commitment loss with respect to the old ones."""
        x = torch.cat(items, 2)  # [B, H', 2 N, d]
        index = torch.cat(nearest, 2)  # [B, H', 2 N]
        heads, K, d = self.centroids.shape
        row = index + K * torch.arange(heads, device=x.device)[:, None]
        means = self.centroids.flatten(0, 1).to(x.dtype)
        error = (x - means.index_select(0, row.flatten()).view_as(x)).square().mean(-1)
        real = torch.ones_like(error)
        if mask is not None:
            real = real * mask.repeat(1, len(items))[:, None]
        self.commitment = self.config.commitment * (error * real).sum() / real.sum().clamp(min=1)
        with torch.no_grad():
            sums = torch.zeros_like(means)
            sums.index_add_(0, row.flatten(), (x * real[..., None]).flatten(0, 2))
            count = means.new_zeros(len(means)).index_add_(0, row.flatten(), real.flatten())
            target = torch.where(count[:, None] > 0, sums / count[:, None].clamp(min=1), means)
            self.centroids.lerp_(
                target.view(heads, K, d).to(self.centroids.dtype), 1 - self.config.decay
            )

    def nearby(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """Attention of blocks of M tokens over themselves and adjacent blocks, [B, L, N, d]."""
        N = q.shape[2]
        M = min(self.config.window, N)
        C = -(-N // M)
        after = 0 if self.causal or C == 1 else M
        before = 0 if C == 1 else M
        q = F.pad(q, (0, 0, 0, C * M - N)).unflatten(2, (C, M))
        sides = (0, 0, before, C * M - N + after)
        k, v = (F.pad(x, sides).unfold(2, before + M + after, M).mT for x in (k, v))
        bias = None
        seen = None
        if mask is not None or self.causal or C > 1:
            real = torch.ones(1, N, dtype=torch.bool, device=q.device) if mask is None else mask
            allowed = F.pad(real, sides[2:]).unfold(1, before + M + after, M)[:, None, :, None]
            if self.causal:
                allowed = allowed & torch.ones(
                    M, before + M, dtype=torch.bool, device=q.device
                ).tril(before)
            bias = at.additive(allowed, q.dtype)  # [B or 1, 1, C, M or 1, keys]
            seen = None if mask is None else allowed.any(-1, keepdim=True)
        o = self.kernel(q, k, v, bias)
        return (o if seen is None else o * seen).flatten(2, 3)[:, :, :N]

    def auxiliary_loss(self) -> Tensor | None:
        return self.commitment if self.training else None

    def draws(self, index: int) -> at.Draws:
        """Members of each cluster [H', K, W]; −1 where there are not enough real tokens."""
        if not self.members:
            return {}
        return {"queries": self.members[0][index], "keys": self.members[-1][index]}

    @staticmethod
    def needs(config: Config, w: at.Workload) -> str | None:
        if local_heads(config, w) > w.heads:
            return f"local_heads is {config.local_heads}; there are only {w.heads} heads"
        return None

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """The projections; μ q̃ᵀ (μ k̃ᵀ), q̃ k̃ᵀ and A v of clusters, q kᵀ and A v of blocks."""
        L = local_heads(config, w)
        d = w.head_width
        K, W = shape(config, w.seq_len)
        M, C, keys = blocks(config, w)
        scores = (1 if w.causal else 2) * 2 * w.tokens * K * d
        clusters = 2 * 2 * w.batch * K * W * W * d
        local = 2 * 2 * w.batch * C * M * keys * d
        core = (w.heads - L) * (scores + clusters) + L * local
        if w.causal:
            return at.Flops(at.projection_flops(w, 3) + 2 * w.tokens * w.width * L * d, core)
        return at.Flops(at.projection_flops(w), core)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        L = local_heads(config, w)
        K, W = shape(config, w.seq_len)
        M, C, keys = blocks(config, w)
        logits = L * C * M * keys + (w.heads - L) * K * W * W
        return w.batch * (2 * logits + K * w.seq_len) + 6 * w.tokens * w.width


def reference(
    module: RoutingTransformer, x: Tensor, mask: Tensor | None, draws: at.Draws
) -> Tensor:
    N = len(x)
    d = module.width // module.heads
    L = module.local
    real = [j for j in range(N) if mask is None or mask[j]]
    M = min(module.config.window, N)
    v = module.value(x)
    heads = []
    for h in range(module.heads):
        part = slice(h * d, (h + 1) * d)
        q = module.query(x)[:, part]
        if h < L:
            k = module.key(x)[:, part]
            reach = {0, 1} if module.causal else {-1, 0, 1}
            # the key sets of each token, one for each cluster that it is in
            sets = [[[j for j in real if i // M - j // M in reach]] for i in range(N)]
        else:
            q = standard(q)
            k = q if module.causal else standard(module.key(x)[:, part])
            clusters = list(zip(draws["queries"][h - L], draws["keys"][h - L], strict=True))
            sets = [
                [[j for j in real if j in keys] for queries, keys in clusters if i in queries]
                for i in range(N)
            ]
        rows = []
        for i in range(N):
            seen = [[j for j in keys if j <= i or not module.causal] for keys in sets[i]]
            outputs = [(k[keys] @ q[i] / d**0.5).softmax(0) @ v[keys, part] for keys in seen]
            rows.append(torch.stack(outputs).mean(0) if outputs else torch.zeros_like(v[i, part]))
        heads.append(torch.stack(rows))
    return module.output(torch.cat(heads, -1))


def standard(x: Tensor) -> Tensor:
    """Each row with zero mean and unit variance, to which the usual 1e-5 is added."""
    x = x - x.mean(-1, keepdim=True)
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()


class Sdpa(RoutingTransformer):
    kernel = staticmethod(at.fused_biased_attention)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        K, _ = shape(config, w.seq_len)
        return w.batch * K * w.seq_len + 8 * w.tokens * w.width


def gathered(x: Tensor, members: Tensor) -> Tensor:
    """[B, H', N, d] at members [B, H', K, W] to [B, H', K, W, d]."""
    return at.gather_tokens(x.flatten(0, 1), members.flatten(0, 1)).unflatten(0, members.shape[:2])


def scattered_mean(o: Tensor, members: Tensor, N: int) -> Tensor:
    """[B, H', K, W, d] to [B, H', N, d]: the mean over the clusters of each token, or 0."""
    B, H = members.shape[:2]
    row = at.row_numbers(members.flatten(0, 1), N)
    sums = o.new_zeros(B * H * N, o.shape[-1]).index_add(0, row, o.flatten(0, 3))
    count = o.new_zeros(B * H * N).index_add(0, row, torch.ones_like(row, dtype=o.dtype))
    return (sums / count.clamp(min=1)[:, None]).view(B, H, N, -1)


def parameters(config: Config, w: at.Workload) -> int:
    """The four projections; if causal, only local heads have a key projection."""
    keys = local_heads(config, w) * w.head_width if w.causal else w.width
    return (3 * w.width + keys) * (w.width + config.bias)


CARD = at.Card(
    forms={"eager": RoutingTransformer, "sdpa": Sdpa},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=at.Family.LEARNED,
    causality=at.Causality.OPTIONAL,
    paper=at.Paper(
        "Efficient Content-Based Sparse Attention with Routing Transformers",
        "Roy et al.",
        2020,
        "arXiv:2003.05997",
    ),
    cost=at.Cost("O(N·√N·d)", time=1.5, memory=1.5),
    examples=(
        Config(clusters=3, window=5, bias=True),
        Config(clusters=4, members=3, local_heads=0),
        Config(),
    ),
    default="sdpa",
    needs=RoutingTransformer.needs,
    exempt={
        at.Exemption.EXTRA_PADDING: "the size of a cluster depends on N",
        at.Exemption.FUTURE_SELECTION: "a cluster takes its members from the whole sequence",
    },
    no_decode_reason="a cluster takes its members from the whole sequence, so a further token may"
    " replace past ones",
)
